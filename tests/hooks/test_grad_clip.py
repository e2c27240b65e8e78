"""GradClipHook: bit-identical to an Optim that clips, once per window, with the norm before clipping recorded."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hookline import Hook, Optim, Runner
from hookline.engine.steps import cross_entropy
from hookline.errors import ConfigError
from hookline.hooks import GradClipHook, GradNormHook
from hookline.testing import MemoryWriter, toy_data, toy_model, toy_runner


def by_hand(windows: list[int], max_norm: float) -> tuple[nn.Module, list[float]]:
    """Train the toy model by hand, and return it with the norms before clipping."""
    model, data = toy_model(), iter(toy_data(sum(windows)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms = []
    for window in windows:
        for _ in range(window):
            (cross_entropy(model, next(data)) / window).backward()  # type: ignore[no-untyped-call]
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), max_norm).item())
        optimizer.step()
        optimizer.zero_grad()
    return model, norms


def optim_of(model: nn.Module, **settings: Any) -> Optim:
    return Optim(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), **settings)


def assert_same(ours: nn.Module, theirs: nn.Module) -> None:
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert a.equal(b)


def norms_of(runner: Runner, name: str = "train/grad_norm") -> list[float]:
    return runner.hub.get_scalar(name).last()


@pytest.mark.parametrize(
    ("batches", "accumulate", "windows"), [(3, 1, [1, 1, 1]), (6, 2, [2, 2, 2]), (7, 3, [3, 3, 1]), (2, 5, [2])]
)
def test_it_clips_once_a_window_and_records_the_norms_before(batches: int, accumulate: int, windows: list[int]) -> None:
    runner = toy_runner(
        max_epochs=1, batches=batches, accumulate=accumulate, custom_hooks=[GradClipHook(max_norm=0.01)]
    )
    runner.train()
    model, norms = by_hand(windows, 0.01)
    assert_same(runner.model, model)
    assert norms_of(runner) == norms
    assert min(norms) > 0.01
    assert runner.optims.sole.grad_norm is not None
    assert runner.optims.sole.grad_norm.item() == norms[-1]


def test_a_partial_window_of_unknown_length_is_clipped_after_it_was_rescaled() -> None:
    runner = toy_runner(max_epochs=1, accumulate=5, custom_hooks=[GradClipHook(max_norm=0.01)])
    runner.train_loop.dataloader = iter(toy_data(7))
    runner.train()
    model, norms = by_hand([5, 2], 0.01)
    assert norms_of(runner) == pytest.approx(norms)
    for ours, theirs in zip(runner.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize(
    ("hook", "optim"),
    [
        ({"max_norm": 0.05}, {"clip_norm": 0.05}),
        ({"max_norm": 0.05, "norm_type": math.inf}, {"clip_norm": 0.05, "norm_type": math.inf}),
        ({"max_norm": 0.05, "norm_type": 1}, {"clip_norm": 0.05, "norm_type": 1}),
        ({"mode": "value", "clip_value": 0.02}, {"clip_value": 0.02}),
    ],
)
def test_training_is_the_same_to_the_bit_as_with_an_optim_that_clips(
    hook: dict[str, Any], optim: dict[str, Any], accumulate: int, precision: str
) -> None:
    first, second = toy_model(), toy_model()
    ours = toy_runner(
        model=first,
        batches=5,
        optim=optim_of(first, accumulate=accumulate),
        custom_hooks=[GradClipHook(**hook)],
        precision=precision,
    )
    theirs = toy_runner(
        model=second, batches=5, optim=optim_of(second, accumulate=accumulate, **optim), precision=precision
    )
    ours.train()
    theirs.train()
    assert_same(ours.model, theirs.model)
    assert norms_of(ours) == norms_of(theirs)
    assert len(norms_of(ours)) == (10 if accumulate == 1 else 4)


class Watch(Hook):
    """Records the largest gradient before and after the optimizer step."""

    def __init__(self) -> None:
        self.before: list[float] = []
        self.after: list[float] = []

    def before_optimizer_step(self, runner: Runner) -> None:
        self.before.append(greatest(runner.model))

    def after_optimizer_step(self, runner: Runner) -> None:
        self.after.append(greatest(runner.model))


def greatest(model: nn.Module) -> float:
    return max(parameter.grad.abs().max().item() for parameter in model.parameters() if parameter.grad is not None)


def test_by_value_every_gradient_is_cut_off_and_other_hooks_see_them_whole_before() -> None:
    watch = Watch()
    hooks = [GradClipHook("value", clip_value=0.001), watch]
    runner = toy_runner(max_epochs=1, batches=2, custom_hooks=hooks)
    runner.train()
    assert min(watch.before) > 0.001
    assert watch.after == pytest.approx([0.001, 0.001])
    assert min(norms_of(runner)) > 0.001


def test_with_fp16_the_gradients_are_unscaled_first_and_a_skipped_step_is_clipped_harmlessly() -> None:
    class Explode(Hook):
        def before_backward(self, runner: Runner, outputs: dict[str, Any]) -> None:
            if runner.iter == 1:
                outputs["loss"] = outputs["loss"] * math.inf

    hooks = [Explode(), GradClipHook(max_norm=0.5)]
    runner = toy_runner(max_epochs=1, batches=3, precision="fp16", custom_hooks=hooks, val=None)
    runner.train()
    first, second, third = norms_of(runner)
    assert 0 < first < 10  # scaled, it would be thousands
    assert not math.isfinite(second)
    assert 0 < third < 10
    assert runner.optims.sole.scaler is not None
    assert runner.optims.sole.scaler.get_scale() == 2.0**15
    assert all(parameter.isfinite().all() for parameter in runner.model.parameters())


def test_a_batch_skipped_before_its_backward_pass_is_not_clipped() -> None:
    runner = toy_runner(max_epochs=1, batches=4, custom_hooks=[GradClipHook(max_norm=0.01)])
    runner.on("before_backward")(lambda runner: runner.skip_step("odd") if runner.iter in (1, 3) else None)
    runner.train()
    assert len(norms_of(runner)) == runner.updates == 2


def two_optims(**settings: Any) -> tuple[nn.ModuleDict, dict[str, Optim], Any]:
    model = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 2)})
    optims = {name: optim_of(model[name], **settings) for name in model}
    optims["b"].accumulate = 2

    def step(model: Any, batch: Any, optim: Any) -> None:
        inputs, target = batch
        for name in model:  # both have gradients whenever one of them steps
            loss = sum(nn.functional.cross_entropy(part(inputs), target) for part in model.values())
            optim[name].update(loss)

    return model, optims, step


def test_with_several_optims_each_is_clipped_when_it_steps_and_has_its_own_record() -> None:
    model, optims, step = two_optims()
    seen: list[list[bool]] = []

    class Clipped(Hook):
        """Records which of the two has gradients within the limit at a step."""

        def after_optimizer_step(self, runner: Runner) -> None:
            seen.append([norm_of(part) < 0.0101 for part in model.values()])

    def norm_of(part: nn.Module) -> float:
        gradients = [parameter.grad for parameter in part.parameters() if parameter.grad is not None]
        return torch.nn.utils.get_total_norm(gradients).item()

    hooks = [GradClipHook(max_norm=0.01), Clipped()]
    runner = toy_runner(model=model, max_epochs=1, batches=4, step=step, optim=optims, custom_hooks=hooks, val=None)
    runner.train()
    assert {name: len(norms_of(runner, f"train/{name}/grad_norm")) for name in optims} == {"a": 4, "b": 2}
    assert "train/grad_norm" not in runner.hub.scalars
    assert seen == [[True, False], [True, False], [False, True], [True, False], [True, False], [False, True]]
    assert min(norms_of(runner, "train/b/grad_norm")) > 0.01


@pytest.mark.parametrize(
    ("settings", "limit"), [({"clip_norm": 1.0}, "clip_norm=1.0"), ({"clip_value": 0.5}, "clip_value=0.5")]
)
def test_an_optim_that_also_clips_is_refused_before_the_first_step(settings: dict[str, Any], limit: str) -> None:
    model = toy_model()
    runner = toy_runner(model=model, optim=optim_of(model, **settings), custom_hooks=[GradClipHook(max_norm=1.0)])
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert str(refused.value) == (
        f"GradClipHook and the optim (Optim({limit})) both clip the gradients; remove the hook or the {limit}"
    )
    assert runner.iter == 0
    runner.val()  # clips nothing


def test_of_several_optims_the_one_that_also_clips_is_named() -> None:
    model, optims, step = two_optims()
    optims["b"] = optim_of(model["b"], clip_norm=2.0)
    runner = toy_runner(model=model, step=step, optim=optims, val=None, custom_hooks=[GradClipHook(max_norm=1.0)])
    with pytest.raises(ConfigError, match=r"^GradClipHook and the optim 'b' \(Optim\(clip_norm=2.0\)\) both clip"):
        runner.train()


def test_it_runs_last_and_after_grad_norm_hook_whatever_the_order_of_registration() -> None:
    hooks = [GradClipHook(max_norm=1.0), GradNormHook(interval=1), Watch()]
    runner = toy_runner(custom_hooks=hooks)
    assert [call.who for call in runner.plan.calls_at("before_optimizer_step")] == [
        *["GradNormHook", "Watch", "GradClipHook"]
    ]
    late = {"type": "GradNormHook", "priority": "LOWEST"}
    runner = toy_runner(custom_hooks=[GradClipHook(max_norm=1.0), late])
    assert [call.who for call in runner.plan.calls_at("before_optimizer_step")] == ["GradNormHook", "GradClipHook"]


def test_the_norm_stays_a_tensor_until_it_is_logged() -> None:
    kinds: list[type] = []
    writer = MemoryWriter()
    runner = toy_runner(max_epochs=1, batches=4, custom_hooks=[GradClipHook(max_norm=0.01)], writers=[writer])
    runner.on("after_train_iter", priority=59)(
        lambda runner: kinds.append(type(runner.hub.get_scalar("train/grad_norm").values[-1]))
    )
    runner.train()
    assert kinds == [Tensor] * 4
    _, norms = by_hand([1, 1, 1, 1], 0.01)
    assert [record["train/grad_norm"] for record in writer.records if "train/grad_norm" in record] == [sum(norms) / 4]


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    def trained(folder: str, epochs: int, **parts: Any) -> Runner:
        model = toy_model()
        hooks = [GradClipHook(max_norm=0.05)]
        runner = toy_runner(
            model=model,
            max_epochs=epochs,
            optim=optim_of(model),
            custom_hooks=hooks,
            work_dir=tmp_path / folder,
            **parts,
        )
        runner.train()
        return runner

    whole = trained("whole", 2)
    trained("broken", 1)
    resumed = trained("broken", 2, resume=True)
    assert_same(resumed.model, whole.model)
    assert norms_of(resumed) == norms_of(whole)
    assert len(norms_of(whole)) == 8


def test_train_twice_without_default_hooks_and_after_a_failure() -> None:
    names = ("runtime_info", "timer", "sampler_seed", "logger", "param_scheduler", "checkpoint")
    runner = toy_runner(
        max_epochs=1, custom_hooks=[GradClipHook(max_norm=0.05)], default_hooks=dict.fromkeys(names), val=None
    )
    fail = runner.on("after_backward")(lambda runner: 1 // (3 - runner.iter))
    with pytest.raises(ZeroDivisionError):
        runner.train()
    assert len(norms_of(runner)) == 3
    runner.remove_hook(fail)
    runner.train_loop.max_epochs = 2
    runner.train()
    assert len(norms_of(runner)) == runner.updates == runner.iter


def test_a_config_names_it(tmp_path: Path) -> None:
    config = {
        "model": {"type": "Linear", "in_features": 4, "out_features": 2},
        "custom_hooks": [{"type": "GradClipHook", "mode": "value", "clip_value": 0.1, "norm_type": math.inf}],
        "work_dir": str(tmp_path),
    }
    hook = next(hook for hook in Runner.from_config(config).hooks if isinstance(hook, GradClipHook))
    assert (hook.mode, hook.clip.norm, hook.clip.value, hook.clip.norm_type) == ("value", None, 0.1, math.inf)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "mode 'norm' needs max_norm"),
        ({"mode": "value"}, "mode 'value' needs clip_value"),
        ({"mode": "nrom", "max_norm": 1.0}, "mode cannot be 'nrom'; did you mean 'norm'?"),
        ({"clip_value": 1.0}, "clip_value is for mode 'value', but the mode is 'norm'"),
        ({"max_norm": 1.0, "clip_value": 1.0}, "clip_value is for mode 'value', but the mode is 'norm'"),
        ({"mode": "value", "max_norm": 1.0}, "max_norm is for mode 'norm', but the mode is 'value'"),
        ({"max_norm": 0}, "max_norm must be a number above 0, not 0"),
        ({"max_norm": math.nan}, "max_norm must be a number above 0, not nan"),
        ({"max_norm": "1"}, "max_norm must be a number above 0, not '1'"),
        ({"mode": "value", "clip_value": -1.0}, "clip_value must be a number above 0, not -1.0"),
        ({"max_norm": 1.0, "norm_type": 0}, "norm_type must be a number above 0, not 0"),
        ({"max_norm": 1.0, "norm_type": -math.inf}, "norm_type must be a number above 0, not -inf"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        GradClipHook(**parameters)
    assert str(refused.value) == f"GradClipHook: {message}"


def test_two_of_them_are_refused() -> None:
    runner = toy_runner(custom_hooks=[GradClipHook(max_norm=1.0), GradClipHook(max_norm=2.0)])
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert str(refused.value) == ("GradClipHook: there are two GradClipHooks; one applies to all optims, so remove one")


@pytest.mark.parametrize("by_hook", [True, False])
def test_a_step_that_is_left_out_at_the_last_moment_has_no_norm(by_hook: bool) -> None:
    model = toy_model()
    optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1), clip_norm=None if by_hook else 1.0)
    runner = toy_runner(
        model=model, optim=optim, max_epochs=1, custom_hooks=[GradClipHook(max_norm=1.0)] if by_hook else []
    )

    @runner.on("before_optimizer_step")
    def leave_out(runner: Runner) -> None:
        if runner.iter == 1:
            runner.skip_step("odd")

    runner.train()
    assert len(runner.hub.get_scalar("train/grad_norm")) == 3

"""GradNormHook: norms as computed by hand, at exactly the requested steps, and no effect on training."""

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
from hookline.testing import MemoryWriter, toy_model, toy_runner


class ByHand(Hook):
    """Records gradients and weights of every parameter at every optimizer step, in float64."""

    priority = "HIGHEST"

    def __init__(self) -> None:
        self.gradients: list[dict[str, Tensor]] = []
        self.weights: list[dict[str, Tensor]] = []

    def before_optimizer_step(self, runner: Runner) -> None:
        named = dict(runner.model.named_parameters())
        self.gradients.append({name: p.grad.double().clone() for name, p in named.items() if p.grad is not None})
        self.weights.append({name: p.detach().double().clone() for name, p in named.items()})


def norm(tensors: dict[str, Tensor], start: str = "", order: float = 2.0) -> float:
    """Return the norm of those whose name begins with a prefix, by its definition."""
    values = torch.cat([value.flatten() for name, value in tensors.items() if name.startswith(start)]).abs()
    return values.max().item() if order == math.inf else (values**order).sum().item() ** (1 / order)


def recorded(runner: Runner) -> dict[str, list[float]]:
    return {name: history.last() for name, history in runner.hub.scalars.items() if "_norm" in name}


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, math.inf])
def test_the_norms_are_those_by_hand(order: float) -> None:
    hand = ByHand()
    runner = toy_runner(max_epochs=2, custom_hooks=[hand, GradNormHook(interval=1, norm_type=order)])
    runner.train()
    assert len(hand.gradients) == 8
    expected = {}
    for kind, tensors in (("grad_norm", hand.gradients), ("weight_norm", hand.weights)):
        for module, start in (("total", ""), ("0", "0."), ("2", "2.")):
            expected[f"train/{kind}/{module}"] = pytest.approx([norm(each, start, order) for each in tensors], rel=1e-6)
    assert recorded(runner) == expected


class Deep(nn.Module):
    """Has its own parameter and nested modules: one is shared, one is unused, and one is called total."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        first = nn.Linear(4, 4)
        self.stem = nn.Sequential(first, nn.Sequential(nn.Linear(4, 4)))
        self.tied = nn.Linear(4, 4)
        self.tied.weight = first.weight
        self.unused = nn.Linear(4, 4)
        self.total = nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.total(self.tied(self.stem(inputs * self.scale)))
        return found


@pytest.mark.parametrize(
    ("depth", "groups"),
    [
        (1, {"scale": ["scale"], "stem": ["stem."], "tied": ["tied."], "model.total": ["total."]}),
        (
            2,
            {"scale": ["scale"], "stem.0": ["stem.0."], "stem.1": ["stem.1."], "tied": ["tied."],
             "model.total": ["total."]},
        ),
        (
            9,
            {"scale": ["scale"], "stem.0": ["stem.0."], "stem.1.0": ["stem.1.0."], "tied": ["tied."],
             "model.total": ["total."]},
        ),
    ],
)  # fmt: skip
def test_modules_are_split_to_the_given_depth_and_shared_parameters_count_once(
    depth: int, groups: dict[str, list[str]]
) -> None:
    torch.manual_seed(0)
    hand = ByHand()
    runner = toy_runner(model=Deep(), max_epochs=1, batches=1, custom_hooks=[hand, GradNormHook(1, depth=depth)])
    runner.train()
    gradients, weights = hand.gradients[0], hand.weights[0]
    assert "tied.weight" not in weights
    expected = {f"train/grad_norm/{group}": norm(gradients, starts[0]) for group, starts in groups.items()}
    expected |= {f"train/weight_norm/{group}": norm(weights, starts[0]) for group, starts in groups.items()}
    expected |= {"train/grad_norm/total": norm(gradients), "train/weight_norm/total": norm(weights)}
    expected["train/weight_norm/unused"] = norm(weights, "unused.")  # it has no gradient, so it has no gradient norm
    assert recorded(runner) == {name: [pytest.approx(value, rel=1e-6)] for name, value in expected.items()}


@pytest.mark.parametrize(
    ("interval", "accumulate", "steps"),
    [
        (1, 1, [1, 2, 3, 4, 5, 6, 7]),
        (3, 1, [3, 6]),
        (1, 3, [3, 6, 7]),
        (2, 3, [6]),
        (50, 1, []),
    ],
)
def test_it_records_every_interval_windows_and_nothing_between(
    interval: int, accumulate: int, steps: list[int]
) -> None:
    hook = GradNormHook(interval)
    runner = toy_runner(max_epochs=1, batches=7, accumulate=accumulate, custom_hooks=[hook])
    seen: list[int] = []
    counted = 0

    @runner.on("after_train_iter")
    def look(runner: Runner) -> None:
        nonlocal counted
        history = runner.hub.history("train/grad_norm/total")
        if len(history) > counted:
            seen.append(runner.iter + 1)
        assert len(history) - counted in (0, 1)
        counted = len(history)

    runner.train()
    assert seen == steps


def test_weights_can_be_left_out() -> None:
    runner = toy_runner(max_epochs=1, custom_hooks=[GradNormHook(2, weights=False)])
    runner.train()
    assert {name: len(values) for name, values in recorded(runner).items()} == {
        f"train/grad_norm/{name}": 2 for name in ("total", "0", "2")
    }


@pytest.mark.parametrize("who", ["optim", "hook"])
def test_the_gradients_are_those_before_clipping(who: str) -> None:
    model = toy_model()
    optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1), clip_norm=0.01 if who == "optim" else None)
    hooks: list[Hook] = [GradClipHook(max_norm=0.01)] if who == "hook" else []
    runner = toy_runner(model=model, optim=optim, max_epochs=1, custom_hooks=[*hooks, GradNormHook(1)])
    runner.train()
    found = recorded(runner)
    assert found["train/grad_norm/total"] == found["train/grad_norm"]  # bit-identical: it is the same norm
    assert min(found["train/grad_norm/total"]) > 0.01


def test_with_fp16_the_gradients_are_unscaled() -> None:
    runner = toy_runner(max_epochs=1, precision="fp16", custom_hooks=[GradNormHook(1)])
    runner.train()
    assert max(recorded(runner)["train/grad_norm/total"]) < 10


@pytest.mark.parametrize(("interval", "counts"), [(1, {"a": 6, "b": 6}), (2, {"a": 3, "b": 3}), (3, {"a": 2, "b": 2})])
def test_with_several_optims_each_has_its_own_parameters_and_its_own_interval(
    interval: int, counts: dict[str, int]
) -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 2)})
    optims = {name: Optim(torch.optim.SGD(model[name].parameters(), lr=0.1)) for name in model}

    def step(model: Any, batch: Any, optim: Any) -> None:
        for name in model:  # they take turns
            inputs, target = batch
            optim[name].update(sum(nn.functional.cross_entropy(part(inputs), target) for part in model.values()))

    hand = ByHand()
    hooks = [hand, GradNormHook(interval)]
    runner = toy_runner(model=model, max_epochs=1, batches=6, step=step, optim=optims, custom_hooks=hooks, val=None)
    runner.train()
    found = recorded(runner)
    kinds = ("grad_norm", "weight_norm")
    expected = {
        f"train/{name}/{kind}/{part}": n for name, n in counts.items() for kind in kinds for part in ("total", name)
    }
    assert {name: len(values) for name, values in found.items()} == expected
    for turn, name in enumerate(model):
        own = hand.gradients[turn::2][interval - 1 :: interval]
        by_hand = [norm(gradients, f"{name}.") for gradients in own]
        assert found[f"train/{name}/grad_norm/total"] == pytest.approx(by_hand, rel=1e-6)


def test_parameters_that_are_not_the_models_count_in_the_total_and_frozen_ones_have_no_gradient() -> None:
    model = toy_model()
    model[0].requires_grad_(False)
    extra = nn.Parameter(torch.tensor([3.0]))

    def step(model: nn.Module, batch: Any) -> Tensor:
        return cross_entropy(model, batch) + 4 * extra.sum()

    optim = Optim(torch.optim.SGD([*model.parameters(), extra], lr=0.0))
    hand = ByHand()
    runner = toy_runner(
        model=model, step=step, optim=optim, max_epochs=1, batches=1, custom_hooks=[hand, GradNormHook(1)]
    )
    runner.train()
    gradients, weights = hand.gradients[0], hand.weights[0]
    assert recorded(runner) == {
        "train/grad_norm/total": [pytest.approx(math.hypot(norm(gradients), 4))],
        "train/grad_norm/2": [pytest.approx(norm(gradients))],
        "train/weight_norm/total": [pytest.approx(math.hypot(norm(weights), 3))],
        "train/weight_norm/0": [pytest.approx(norm(weights, "0."))],
        "train/weight_norm/2": [pytest.approx(norm(weights, "2."))],
    }


def test_parameters_that_the_optimizer_does_not_update_are_not_measured() -> None:
    model = toy_model()
    optim = Optim(torch.optim.SGD(model[2].parameters(), lr=0.1))
    runner = toy_runner(model=model, optim=optim, max_epochs=1, batches=2, custom_hooks=[GradNormHook(1)])
    runner.train()
    found = recorded(runner)
    assert list(found) == [f"train/{kind}/{name}" for name in ("total", "2") for kind in ("grad_norm", "weight_norm")]
    assert found["train/grad_norm/total"] == found["train/grad_norm/2"]


def test_they_are_tensors_without_a_graph_until_they_are_logged() -> None:
    writer = MemoryWriter()
    runner = toy_runner(max_epochs=1, batches=4, custom_hooks=[GradNormHook(2)], writers=[writer], val=None)
    kinds: list[Any] = []

    @runner.on("after_optimizer_step")
    def look(runner: Runner) -> None:
        newest = [runner.hub.history(f"train/{kind}_norm/total").values for kind in ("grad", "weight")]
        kinds.extend((type(values[-1]), getattr(values[-1], "requires_grad", None)) for values in newest if values)

    runner.train()
    assert kinds == [(Tensor, False)] * 6
    record = writer.records[-1]
    found = recorded(runner)
    assert record["train/grad_norm/0"] == sum(found["train/grad_norm/0"]) / 2  # the mean since the last record
    assert record["train/weight_norm/0"] == found["train/weight_norm/0"][-1]


def test_training_is_the_same_to_the_bit_with_and_without_it() -> None:
    having, without = toy_runner(custom_hooks=[GradNormHook(1, depth=3)]), toy_runner()
    having.train()
    without.train()
    for ours, theirs in zip(having.model.parameters(), without.model.parameters(), strict=True):
        assert ours.equal(theirs)
    assert having.val() == without.val()


def test_a_resumed_run_records_at_the_same_steps(tmp_path: Path) -> None:
    def trained(folder: str, epochs: int, **parts: Any) -> Runner:
        runner = toy_runner(max_epochs=epochs, custom_hooks=[GradNormHook(3)], work_dir=tmp_path / folder, **parts)
        runner.train()
        return runner

    whole = trained("whole", 3)
    trained("broken", 1)
    resumed = trained("broken", 3, resume=True)
    assert recorded(resumed) == recorded(whole)
    assert len(recorded(whole)["train/grad_norm/total"]) == 4


def test_train_twice_without_default_hooks_and_after_a_failure() -> None:
    names = ("runtime_info", "timer", "sampler_seed", "logger", "param_scheduler", "checkpoint")
    runner = toy_runner(max_epochs=1, custom_hooks=[GradNormHook(1)], default_hooks=dict.fromkeys(names), val=None)
    fail = runner.on("after_backward")(lambda runner: 1 // (3 - runner.iter))
    with pytest.raises(ZeroDivisionError):
        runner.train()
    runner.remove_hook(fail)
    runner.train_loop.max_epochs = 2
    runner.train()
    assert len(recorded(runner)["train/grad_norm/total"]) == runner.updates


def test_a_config_names_it(tmp_path: Path) -> None:
    config = {
        "model": {"type": "Linear", "in_features": 4, "out_features": 2},
        "custom_hooks": [{"type": "GradNormHook", "interval": 7, "depth": 2, "weights": False, "on_error": "disable"}],
        "work_dir": str(tmp_path),
    }
    hook = next(hook for hook in Runner.from_config(config).hooks if isinstance(hook, GradNormHook))
    assert (hook.interval, hook.norm_type, hook.depth, hook.weights) == (7, 2.0, 2, False)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"interval": 0}, "interval must be an int of at least 1, not 0"),
        ({"interval": 2.0}, "interval must be an int of at least 1, not 2.0"),
        ({"norm_type": 0}, "norm_type must be a number above 0, not 0"),
        ({"norm_type": "2"}, "norm_type must be a number above 0, not '2'"),
        ({"depth": 0}, "depth must be an int of at least 1, not 0"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        GradNormHook(**parameters)
    assert str(refused.value) == f"GradNormHook: {message}"

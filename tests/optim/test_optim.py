from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, ReduceLROnPlateau, StepLR

from hookline import EvalLoop, Hook, Optim, Runner
from hookline.engine.metrics import accuracy
from hookline.engine.steps import cross_entropy, predict
from hookline.errors import ConfigError, HooklineError
from hookline.optim.clipping import Clip
from hookline.testing import Recorder, toy_data, toy_model, toy_runner


def by_hand(windows: list[int], clip: float | None = None) -> nn.Module:
    """Train the toy model on its data by hand, with this many batches per update."""
    model, data = toy_model(), iter(toy_data(sum(windows)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for window in windows:
        for _ in range(window):
            (cross_entropy(model, next(data)) / window).backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
    return model


def same(ours: nn.Module, theirs: nn.Module) -> bool:
    return all(a.equal(b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_a_last_partial_window_counts_with_its_own_factor_by_epochs() -> None:
    recorder = Recorder("after_optimizer_step")
    runner = toy_runner(max_epochs=1, batches=12, accumulate=5, custom_hooks=[recorder])
    runner.train()
    assert [event.iter + 1 for event in recorder.events] == [5, 10, 12]
    assert same(runner.model, by_hand([5, 5, 2]))


def test_by_iterations_windows_continue_across_passes_and_end_with_the_run() -> None:
    recorder = Recorder("after_optimizer_step")
    runner = toy_runner(max_iters=8, batches=4, accumulate=3, custom_hooks=[recorder], val=None)
    runner.train()
    assert [event.iter + 1 for event in recorder.events] == [3, 6, 8]


def test_without_a_length_the_partial_window_is_scaled_afterwards() -> None:
    runner = toy_runner(max_epochs=1, accumulate=5)
    runner.train_loop.dataloader = iter(toy_data(7))
    runner.train()
    for ours, theirs in zip(runner.model.parameters(), by_hand([5, 2]).parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_clipping_by_norm_happens_once_a_window_and_the_norm_before_it_is_known() -> None:
    model = toy_model()
    optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1), accumulate=2, clip_norm=0.01)
    runner = toy_runner(model=model, max_epochs=1, batches=4, optim=optim)
    norms: list[float] = []
    runner.on("after_optimizer_step")(lambda runner: norms.append(runner.optim.grad_norm.item()))
    runner.train()
    assert same(runner.model, by_hand([2, 2], clip=0.01))
    assert len(norms) == 2
    assert min(norms) > 0.01


def test_clipping_by_value_bounds_every_gradient_after_the_point_that_shows_them_whole() -> None:
    greatest: dict[str, list[float]] = {"before": [], "after": []}

    class Watch(Hook):
        def before_optimizer_step(self, runner: Any) -> None:
            greatest["before"].append(max(p.grad.abs().max().item() for p in runner.model.parameters()))

        def after_optimizer_step(self, runner: Any) -> None:
            greatest["after"].append(max(p.grad.abs().max().item() for p in runner.model.parameters()))

    model = toy_model()
    optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1), clip_value=0.001)
    toy_runner(model=model, max_epochs=1, batches=2, optim=optim, custom_hooks=[Watch()]).train()
    assert min(greatest["before"]) > 0.001
    assert greatest["after"] == pytest.approx([0.001, 0.001])


def test_bf16_computes_the_forward_pass_in_bf16_and_keeps_weights_in_fp32() -> None:
    kinds: list[torch.dtype] = []

    def step(model: nn.Module, batch: Any) -> torch.Tensor:
        scores = model(batch[0])
        kinds.append(scores.dtype)
        return nn.functional.cross_entropy(scores, batch[1])

    runner = toy_runner(max_epochs=1, batches=1, step=step, precision="bf16")
    runner.train()
    assert kinds == [torch.bfloat16]
    assert {parameter.dtype for parameter in runner.model.parameters()} == {torch.float32}


def test_fp16_scales_unscales_before_the_point_and_skips_a_step_that_overflows() -> None:
    recorder = Recorder("after_optimizer_step")
    seen: list[float] = []

    class Explode(Hook):
        def before_backward(self, runner: Any, outputs: Any) -> None:
            if runner.iter == 1:
                outputs["loss"] = outputs["loss"] * float("inf")

        def before_optimizer_step(self, runner: Any) -> None:
            seen.append(runner.model[2].bias.grad.abs().max().item())

    runner = toy_runner(max_epochs=1, batches=3, precision="fp16", custom_hooks=[Explode(), recorder], val=None)
    runner.train()
    optim = runner.optims.sole
    assert optim.scaler is not None
    assert optim.scaler.get_scale() == 2.0**15
    assert len(recorder.events) == 3
    assert seen[0] < 1
    assert all(parameter.isfinite().all() for parameter in runner.model.parameters())


# -------------------------------------------------------------------------------------------------- schedulers


def rates(when: Any, accumulate: int = 1, **length: Any) -> list[float]:
    """Return the learning rate of each iteration, for a scheduler that halves it at every step."""
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=8.0)
    scheduler = ExponentialLR(optimizer, 0.5)
    pairs = [scheduler] if when is None else [(scheduler, when)]
    runner = toy_runner(model=model, batches=4, optim=Optim(optimizer, pairs, accumulate=accumulate), **length)
    seen: list[float] = []
    runner.on("before_backward")(lambda runner: seen.append(runner.optim.learning_rates()[0]))
    runner.train()
    return seen


@pytest.mark.parametrize(
    ("when", "accumulate", "expected"),
    [
        ("epoch", 1, [8, 8, 8, 8, 4, 4, 4, 4]),
        (None, 1, [8, 8, 8, 8, 4, 4, 4, 4]),
        ("iter", 1, [8, 4, 2, 1, 0.5, 0.25, 0.125, 0.0625]),
        ("iter", 3, [8, 4, 2, 1, 0.5, 0.25, 0.125, 0.0625]),
        ("step", 2, [8, 8, 4, 4, 2, 2, 1, 1]),
        ("val", 1, [8, 8, 8, 8, 4, 4, 4, 4]),
    ],
)
def test_schedulers_step_when_they_were_paired(when: Any, accumulate: int, expected: list[float]) -> None:
    assert rates(when, accumulate, max_epochs=2) == expected


def test_a_scheduler_alone_follows_iterations_when_the_loop_does() -> None:
    assert rates(None, max_iters=4) == [8, 4, 2, 1]


def test_a_plateau_steps_on_the_metric_it_names_and_not_in_val_alone() -> None:
    seen: list[float] = []

    class Watching(ReduceLROnPlateau):
        def step(self, metrics: Any, epoch: Any = None) -> None:  # type: ignore[override]
            seen.append(metrics)
            super().step(metrics, epoch)

    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loop = EvalLoop(toy_data(1), predict, metrics={"accuracy": accuracy, "zero": lambda preds, target: 0.0})
    optim = Optim(optimizer, [(Watching(optimizer), "val", "zero")])
    runner = toy_runner(model=model, max_epochs=2, val=loop, optim=optim)
    runner.train()
    runner.val()
    assert seen == [0.0, 0.0]
    optim.schedulers[0].monitor = "zeros"
    runner.train_loop.max_epochs = 3
    with pytest.raises(ConfigError, match="Watching: validation returns no metric 'zeros'; did you mean 'zero'"):
        runner.train()


def test_a_scheduler_at_step_does_not_move_when_the_scaler_skipped() -> None:
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=8.0)
    optim = Optim(optimizer, [(ExponentialLR(optimizer, 0.5), "step")])

    class Explode(Hook):
        def before_backward(self, runner: Any, outputs: Any) -> None:
            if runner.iter == 1:
                outputs["loss"] = outputs["loss"] * float("inf")

    runner = toy_runner(model=model, max_epochs=1, batches=3, optim=optim, precision="fp16", custom_hooks=[Explode()])
    seen: list[float] = []
    runner.on("before_backward")(lambda runner: seen.append(optimizer.param_groups[0]["lr"]))
    runner.train()
    assert [*seen, optimizer.param_groups[0]["lr"]] == [8, 4, 4, 2]


def test_parameter_groups_keep_their_own_rates_and_are_recorded_by_name() -> None:
    model = toy_model()
    groups = [
        {"params": model[0].parameters(), "lr": 1.0},
        {"params": model[2].parameters(), "name": "head", "lr": 0.1},
    ]
    optimizer = torch.optim.SGD(groups)
    optim = Optim(optimizer, [(LambdaLR(optimizer, [lambda n: 0.5**n, lambda n: 1.0]), "iter")])
    runner = toy_runner(model=model, max_epochs=1, batches=3, optim=optim)
    runner.train()
    assert runner.hub.get_scalar("train/lr").last() == [1.0, 0.5, 0.25]
    assert runner.hub.get_scalar("train/lr_head").last() == [0.1, 0.1, 0.1]


# ------------------------------------------------------------------------------------------- several, and alone


def test_a_step_of_ones_own_updates_several_optims_and_their_points_come_for_each() -> None:
    generator, critic = nn.Linear(2, 4), nn.Linear(4, 1)
    model = nn.ModuleDict({"generator": generator, "critic": critic})
    optims = {
        "generator": Optim(torch.optim.SGD(generator.parameters(), lr=0.1)),
        "critic": Optim(torch.optim.SGD(critic.parameters(), lr=0.1), accumulate=2),
    }

    def step(model: Any, batch: Any, optim: Any) -> dict[str, torch.Tensor]:
        fake = model["generator"](torch.ones(8, 2))
        critic_loss = model["critic"](fake.detach()).mean() - model["critic"](batch[0]).mean()
        optim["critic"].update(critic_loss)
        generator_loss = -model["critic"](fake).mean()
        optim["generator"].update(generator_loss)
        return {"critic_loss": critic_loss.detach(), "generator_loss": generator_loss.detach()}

    recorder = Recorder("before_backward", "after_optimizer_step", "after_train_iter")
    runner = toy_runner(
        model=model, max_epochs=1, batches=3, step=step, optim=optims, custom_hooks=[recorder], val=None
    )
    runner.train()
    twice = ["before_backward", "before_backward"]
    last = [
        *twice,
        "after_optimizer_step",
        "after_optimizer_step",
        "after_train_iter",
    ]  # the critic's window is flushed
    assert recorder.names == [
        *twice, "after_optimizer_step", "after_train_iter",
        *["before_backward", "after_optimizer_step", "before_backward", "after_optimizer_step", "after_train_iter"],
        *last,
    ]  # fmt: skip
    assert {name: optim.updates for name, optim in optims.items()} == {"generator": 3, "critic": 2}
    assert runner.updates == 5
    assert sorted(name for name in runner.hub.scalars if "l" in name and "train" in name and "time" not in name) == [
        *["train/critic/lr", "train/critic_loss", "train/generator/lr", "train/generator_loss", "train/loss"]
    ]
    with pytest.raises(HooklineError, match="unknown optim 'critc'; did you mean 'critic'\\?"):
        runner.optim["critc"]


def test_windows_count_updates_when_the_step_makes_its_own() -> None:
    def step(model: nn.Module, batch: Any, optim: Optim) -> None:
        for _ in range(2):
            optim.update(cross_entropy(model, batch))

    recorder = Recorder("before_backward", "after_optimizer_step")
    toy_runner(max_epochs=1, batches=4, step=step, accumulate=4, custom_hooks=[recorder], val=None).train()
    assert recorder.names == [*["before_backward"] * 4, "after_optimizer_step"] * 2


def test_several_optims_need_a_step_that_says_which_updates_when() -> None:
    model = toy_model()
    optims = {name: torch.optim.SGD(model.parameters(), lr=0.1) for name in ("a", "b")}
    with pytest.raises(ConfigError) as refused:
        toy_runner(model=model, optim=optims).train()
    assert str(refused.value) == (
        "there are 2 optims (a, b), so the step must choose which one to update: give it a parameter named optim, "
        "and call optim['name'].update(loss)"
    )


def test_a_step_with_one_optim_may_update_as_often_as_it_likes() -> None:
    def step(model: nn.Module, batch: Any, optim: Optim) -> None:
        for _ in range(3):
            optim.update(cross_entropy(model, batch))

    runner = toy_runner(max_epochs=1, batches=2, step=step)
    runner.train()
    assert (runner.iter, runner.updates) == (2, 6)


def test_an_optim_works_without_a_runner() -> None:
    model = toy_model()
    optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1), accumulate=2)
    for batch in toy_data(5):
        optim.update(cross_entropy(model, batch))
    assert (optim.updates, optim.micro) == (2, 1)
    optim.flush()
    assert (optim.updates, optim.micro) == (3, 0)


def test_a_bare_torch_optimizer_will_do() -> None:
    model = toy_model()
    runner = toy_runner(model=model, optim=torch.optim.SGD(model.parameters(), lr=0.1), max_epochs=1, batches=2)
    runner.train()
    assert same(runner.model, by_hand([1, 1]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"accumulate": 0}, "accumulate must be the number of micro-batches per update, an int of at least 1, not 0"),
        ({"clip_norm": 1.0, "clip_value": 1.0}, "use clip_norm or clip_value, not both"),
        ({"clip_norm": 0.0}, "clip_norm must be a number above 0, not 0.0"),
        ({"clip_value": -1.0}, "clip_value must be a number above 0, not -1.0"),
        ({"clip_value": 1e308}, "clip_value must be at most 3.4e+38, the largest float32, not 1e+308"),
        (
            {"schedulers": ["StepLR"]},
            "a scheduler must be a torch LRScheduler, alone or as (scheduler, when), not 'StepLR'",
        ),
    ],
)
def test_an_optim_that_makes_no_sense_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Optim(torch.optim.SGD(toy_model().parameters(), lr=0.1), **arguments)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (("iters",), "StepLR cannot step at 'iters'; did you mean 'iter'?"),
        (
            ("epoch", "accuracy"),
            "StepLR: only a scheduler that steps at 'val' can have a metric; write (scheduler, 'val', 'accuracy')",
        ),
    ],
)
def test_a_scheduler_pair_that_makes_no_sense_is_refused(pair: tuple[str, ...], message: str) -> None:
    optimizer = torch.optim.SGD(toy_model().parameters(), lr=0.1)
    with pytest.raises(ConfigError) as refused:
        Optim(optimizer, [(StepLR(optimizer, 1), *pair)])
    assert str(refused.value) == message


def gan(folder: Path, **parts: Any) -> Runner:
    """Update the critic, then the generator. The generator's loss also leaves gradients in the critic."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"generator": nn.Linear(2, 4), "critic": nn.Linear(4, 1)})
    players = {name: torch.optim.Adam(model[name].parameters(), lr=0.1) for name in model}

    def step(model: Any, batch: Any, optim: Any) -> None:
        fake = model["generator"](torch.randn(8, 2))
        optim["critic"].update(model["critic"](fake.detach()).mean() - model["critic"](batch[0]).mean())
        optim["generator"].update(-model["critic"](fake).mean())

    return toy_runner(
        model=model, step=step, optim=players, work_dir=folder, max_epochs=2, val=None,
        default_hooks={"checkpoint": {"interval": 1, "by_epoch": False}}, **parts,
    )  # fmt: skip


def test_gradients_of_one_optim_s_loss_in_parameters_of_another_are_not_used(tmp_path: Path) -> None:
    runner = gan(tmp_path / "whole")
    torch.manual_seed(0)
    generator, critic = nn.Linear(2, 4), nn.Linear(4, 1)
    first, second = (torch.optim.Adam(each.parameters(), lr=0.1) for each in (critic, generator))
    runner.train()
    torch.manual_seed(0)
    for batch, _ in toy_data(4) * 2:
        fake = generator(torch.randn(8, 2))
        first.zero_grad()
        (critic(fake.detach()).mean() - critic(batch).mean()).backward()
        first.step()
        second.zero_grad()
        (-critic(fake).mean()).backward()
        second.step()
    assert same(runner.model, nn.ModuleDict({"generator": generator, "critic": critic}))
    broken = gan(tmp_path / "broken")
    broken.on("before_train_iter")(lambda runner: 1 // (runner.iter != 5))
    with pytest.raises(ZeroDivisionError):
        broken.train()
    resumed = gan(tmp_path / "broken", resume=True)
    resumed.train()
    assert same(resumed.model, runner.model)


def test_gradients_may_stay_until_the_next_window_begins() -> None:
    kept, usual = toy_model(), toy_model()
    optims = [
        Optim(torch.optim.SGD(model.parameters(), lr=0.1), accumulate=2, clip_norm=1.0, keep_gradients=keep)
        for model, keep in ((kept, True), (usual, False))
    ]
    seen = []
    for batch in toy_data(4):
        for model, optim in zip((kept, usual), optims, strict=True):
            optim.update(cross_entropy(model, batch))
        seen.append([model[0].weight.grad is None for model in (kept, usual)])
    assert seen == [[False, False], [False, True]] * 2
    assert same(kept, usual)


def test_gradients_that_stay_do_not_add_up_in_the_short_cut() -> None:
    model = toy_model()
    optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1), keep_gradients=True)
    for batch in toy_data(4):
        optim.update(cross_entropy(model, batch))
        assert model[0].weight.grad is not None
    assert same(model, by_hand([1, 1, 1, 1]))


def test_an_optim_can_be_changed_while_training() -> None:
    model = toy_model()
    optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1), accumulate=4)
    runner = toy_runner(model=model, optim=optim, max_epochs=2, val=None)

    @runner.on("before_train_epoch")
    def change(runner: Runner) -> None:
        if runner.epoch == 1:
            optim.accumulate, optim.clip = 1, Clip(norm=1e-9)

    runner.train()
    assert optim.updates == 5
    assert optim.grad_norm is not None


def test_a_scheduler_that_would_never_step_is_refused() -> None:
    from hookline.errors import ConfigError

    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(ConfigError, match="^ReduceLROnPlateau steps at 'val', but this run has no validation; "):
        toy_runner(model=model, optim=Optim(optimizer, [plateau]), val=None).train()

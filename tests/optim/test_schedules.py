"""Schedules by name: their curves, lengths that are `auto`, exact resumes, and stretching."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    SequentialLR,
    StepLR,
)
from torch.utils.data import DataLoader, IterableDataset

from hookline import Hook, Optim, Runner, TrainLoop
from hookline.engine.steps import cross_entropy
from hookline.errors import ConfigError
from hookline.schedules import Constant, Cosine, Linear, Schedule, Warmup, WarmupStableDecay
from hookline.testing import toy_data, toy_model, toy_runner


class Rates(Hook):
    """Records the learning rates that each iteration uses."""

    def __init__(self) -> None:
        self.seen: list[list[float]] = []

    def before_train_iter(self, runner: Runner) -> None:
        self.seen.append([rate for optim in runner.optims.values() for rate in optim.learning_rates()])

    @property
    def first(self) -> list[float]:
        return [rates[0] for rates in self.seen]


def optimizer_of(model: nn.Module | None = None, rate: float = 1.0) -> SGD:
    return SGD((model or toy_model()).parameters(), lr=rate)


def curve(schedule: Schedule, steps: int) -> list[float]:
    return [round(schedule.factor(step), 4) for step in range(steps + 1)]


def run(make: Any, accumulate: int = 1, when: str | None = None, **options: Any) -> tuple[Runner, Rates]:
    """Train with the schedulers that `make(optimizer)` returns, and return the rate of each iteration."""
    model, rates = toy_model(), Rates()
    optimizer = optimizer_of(model)
    schedulers = [each if when is None else (each, when) for each in make(optimizer)]
    runner = toy_runner(
        model=model,
        optim=Optim(optimizer, schedulers, accumulate=accumulate),
        custom_hooks=[rates],
        **(options or {"max_epochs": 2}),
    )
    runner.train()
    return runner, rates


# -- the curves


def test_the_curves() -> None:
    optimizer = optimizer_of()
    assert curve(Constant(optimizer, 4, warmup=3), 5) == [0.25, 0.5, 0.75, 1, 1, 1]
    assert curve(Linear(optimizer, 6, warmup=2), 7) == [0.3333, 0.6667, 1, 0.75, 0.5, 0.25, 0, 0]
    assert curve(Linear(optimizer, 4, end_factor=0.2), 5) == [1, 0.8, 0.6, 0.4, 0.2, 0.2]
    assert curve(Cosine(optimizer, 6, warmup=2), 7) == [0.3333, 0.6667, 1, 0.8536, 0.5, 0.1464, 0, 0]
    assert curve(Cosine(optimizer, 4, end_factor=0.5), 5) == [1, 0.9268, 0.75, 0.5732, 0.5, 0.5]
    assert curve(WarmupStableDecay(optimizer, 8, warmup=1, decay=4), 9) == [0.5, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0, 0]
    assert curve(WarmupStableDecay(optimizer, 5, end_factor=0.5), 6) == [1, 1, 1, 1, 1, 0.5, 0.5]
    shaped = [curve(WarmupStableDecay(optimizer, 4, decay=4, decay_shape=shape), 4) for shape in ("cosine", "sqrt")]
    assert shaped == [[1, 0.8536, 0.5, 0.1464, 0], [1, 0.5, 0.2929, 0.134, 0]]


def test_a_share_is_of_the_length_and_at_least_one_step() -> None:
    optimizer = optimizer_of()
    assert [Cosine(optimizer, 40, warmup=share).warmup for share in (0, 0.0, 0.01, 0.05, 0.5, 7)] == [0, 0, 1, 2, 20, 7]
    assert WarmupStableDecay(optimizer, 40, decay=0.25).decay == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"warmup": -1},
            "Cosine: warmup must be a number of steps, an int of at least 0, or a share of the run, a number below 1, "
            "not -1",
        ),
        (
            {"warmup": math.nan},
            "Cosine: warmup must be a number of steps, an int of at least 0, or a share of the run, a number below 1, "
            "not nan",
        ),
        (
            {"warmup": "5%"},
            "Cosine: warmup must be a number of steps, an int of at least 0, or a share of the run, a number below 1, "
            "not '5%'",
        ),
        (
            {"warmup": 1.0},
            "Cosine: warmup is 1.0, which is neither a share of the run, a number below 1 such as 0.05, nor a number "
            "of steps, an int such as 1; write one of these",
        ),
        (
            {"warmup": 50, "length": 40},
            "Cosine: warmup is 50 steps, but there are only 40; use a lower number, or a share of the run such as "
            "0.05, which fits any length",
        ),
        ({"length": 0}, "Cosine: length must be an int of at least 1, not 0"),
        ({"end_factor": -0.5}, "Cosine: end_factor must be a number of at least 0, not -0.5"),
    ],
)
def test_nonsense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Cosine(optimizer_of(), **options)
    assert str(refused.value) == message


def test_warmup_and_decay_have_to_fit_together() -> None:
    with pytest.raises(ConfigError) as refused:
        WarmupStableDecay(optimizer_of(), 10, warmup=6, decay=0.5)
    assert str(refused.value) == (
        "WarmupStableDecay: warmup and decay are 6 and 5 steps, but there are only 10; lower one of them"
    )
    with pytest.raises(ConfigError) as refused:
        WarmupStableDecay(optimizer_of(), 10, decay_shape="cos")  # type: ignore[arg-type]  # that is the test
    assert str(refused.value) == "WarmupStableDecay: decay_shape cannot be 'cos'; did you mean 'cosine'?"


# -- in a run


def test_a_schedule_steps_per_iteration_and_lasts_as_long_as_the_run() -> None:
    runner, rates = run(lambda optimizer: [Linear(optimizer, warmup=0.25)])
    assert rates.first == pytest.approx([1 / 3, 2 / 3, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])
    scheduled = runner.optims.sole.schedulers[0]
    assert (scheduled.when, scheduled.auto, runner.optims.sole.learning_rates()) == ("iter", {"length": 8}, [0.0])


@pytest.mark.parametrize(
    ("when", "accumulate", "options", "length"),
    [
        ("iter", 3, {"max_epochs": 2}, 8),
        ("step", 3, {"max_epochs": 2}, 4),
        ("epoch", 1, {"max_epochs": 2}, 2),
        ("iter", 1, {"max_iters": 5}, 5),
        ("step", 2, {"max_iters": 5}, 3),
    ],
)
def test_the_length_is_in_the_unit_of_the_schedule(
    when: str, accumulate: int, options: dict[str, Any], length: int
) -> None:
    runner, _ = run(lambda optimizer: [Cosine(optimizer)], accumulate, when, **options)
    scheduled: Any = runner.optims.sole.schedulers[0]
    assert (scheduled.auto, scheduled.scheduler.last_epoch) == ({"length": length}, length)
    assert runner.optims.sole.learning_rates() == [0.0]


def test_every_parameter_group_keeps_its_own_rate() -> None:
    model, rates = toy_model(), Rates()
    first, *others = model.parameters()
    groups: list[dict[str, Any]] = [{"params": [first], "lr": torch.tensor(2.0)}, {"params": others}]
    optimizer = SGD(groups, lr=1.0)
    runner = toy_runner(model=model, optim=Optim(optimizer, [Linear(optimizer)]), max_epochs=1, custom_hooks=[rates])
    runner.train()
    assert rates.seen == [[2.0, 1.0], [1.5, 0.75], [1.0, 0.5], [0.5, 0.25]]


def test_several_optims_have_their_own_schedules() -> None:
    model, rates = toy_model(), Rates()
    first, *others = model.parameters()
    one, two = SGD([first], lr=1.0), SGD(others, lr=1.0)

    def step(model: nn.Module, batch: Any, optim: Any) -> Tensor:
        loss = cross_entropy(model, batch)
        loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]  # torch has no annotations here
        optim["one"].optimizer.step()
        optim["two"].optimizer.step()
        return loss.detach()

    optims = {"one": Optim(one, [Linear(one)]), "two": Optim(two, [Constant(two, warmup=1)])}
    toy_runner(model=model, optim=optims, step=step, max_epochs=1, custom_hooks=[rates]).train()
    assert rates.seen == [[1.0, 0.5], [0.75, 1.0], [0.5, 1.0], [0.25, 1.0]]


def test_data_without_a_length_needs_a_number(tmp_path: Path) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(toy_data())

    model = toy_model()
    optimizer = optimizer_of(model)
    loop = TrainLoop(DataLoader(Stream(), batch_size=None), cross_entropy, max_epochs=2)
    runner = Runner(model, train=loop, optim=Optim(optimizer, [Cosine(optimizer)]), work_dir=tmp_path, quiet=True)
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert str(refused.value) == "Cosine: length: 'auto' needs the length of the loader, which has none; set a number"


def test_a_length_in_epochs_says_how_to_count_iterations() -> None:
    with pytest.raises(ConfigError) as refused:
        run(lambda optimizer: [Cosine(optimizer, warmup=5)], when="epoch")
    assert str(refused.value) == (
        "Cosine: warmup is 5 epochs, but there are only 2; use a lower number, or a share of the run such as 0.05, "
        "which fits any length; to count iterations, step at 'iter'"
    )


def test_without_a_runner_the_length_has_to_be_a_number() -> None:
    schedule = Cosine(optimizer_of())
    schedule.optimizer.step()
    with pytest.raises(ConfigError) as refused:
        schedule.step()
    assert str(refused.value) == (
        "Cosine: the length 'auto' is found out when a Runner starts to train; without a Runner, set a number"
    )


def test_a_schedule_inside_another_needs_a_number() -> None:
    optimizer = optimizer_of()
    inside = SequentialLR(optimizer, [ConstantLR(optimizer), Cosine(optimizer)], [2])
    with pytest.raises(ConfigError) as refused:
        Optim(optimizer, [inside])
    assert str(refused.value) == "Cosine inside SequentialLR needs a number as its length, not 'auto'"
    _, rates = run(lambda one: [SequentialLR(one, [ConstantLR(one, 0.5, 9), Linear(one, 6)], [2])], when="iter")
    assert rates.first == pytest.approx([0.5, 0.5, 1, 5 / 6, 4 / 6, 0.5, 2 / 6, 1 / 6])


class Killed(Hook):
    """Ends the run as a kill would."""

    def __init__(self, at: int) -> None:
        self.at = at

    def before_train_iter(self, runner: Runner) -> None:
        if runner.iter == self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    "make",
    [
        lambda one: [Cosine(one, warmup=0.6, end_factor=0.1)],
        lambda one: [WarmupStableDecay(one, warmup=1, decay=0.7, decay_shape="sqrt")],
        lambda one: [StepLR(one, 1, 0.3), Warmup(one, 7)],
        lambda one: [Warmup(one, 0.3), (CosineAnnealingLR(one, 12), "iter")],
    ],
)
@pytest.mark.parametrize("at", [2, 5, 9])
def test_a_killed_run_continues_bit_exactly(tmp_path: Path, make: Any, at: int) -> None:
    def runner_in(folder: Path, *hooks: Hook, **options: Any) -> Runner:
        model = toy_model()
        optimizer = optimizer_of(model, 0.1)
        return toy_runner(
            model=model,
            optim=Optim(optimizer, make(optimizer), accumulate=2),
            max_epochs=3,
            work_dir=folder,
            default_hooks={"checkpoint": {"interval": 1, "by_epoch": False}},
            custom_hooks=list(hooks),
            **options,
        )

    whole, rest = Rates(), Rates()
    through = runner_in(tmp_path / "through", whole)
    through.train()
    with pytest.raises(KeyboardInterrupt):
        runner_in(tmp_path / "killed", Killed(at)).train()
    resumed = runner_in(tmp_path / "killed", rest, resume=True)
    resumed.train()
    assert rest.seen == whole.seen[-len(rest.seen) :]
    assert 0 < len(rest.seen) < len(whole.seen)
    for name, value in through.model.state_dict().items():
        assert resumed.model.state_dict()[name].equal(value)


def test_the_state_is_plain_and_has_no_settings_that_only_a_config_has() -> None:
    schedule = WarmupStableDecay(optimizer_of(), 10, warmup=0.2)
    assert schedule.state_dict() == {
        "base_lrs": [1.0],
        "last_epoch": 0,
        "length": 10,
        "warmup": 2,
        "decay": 2,
        "decay_shape": "linear",
        "end_factor": 0.0,
        "anchor": [0.0, 0.0],
        "speed": 1.0,
        "_step_count": 1,
        "_is_initial": False,
        "_get_lr_called_within_step": False,
        "_last_lr": [1 / 3],
    }
    assert repr(schedule) == "WarmupStableDecay(length=10, warmup=0.2, decay=0.2)"


# -- stretching


def stretched(schedule: Schedule, done: int, remaining: int) -> list[float]:
    """Return the rates at each step: `done` steps, then stretched to last for `remaining` more."""
    schedule.optimizer.step()
    seen = [schedule.get_last_lr()[0]]
    for _ in range(done):
        schedule.step()
        seen.append(schedule.get_last_lr()[0])
    schedule.stretch(remaining)
    for _ in range(remaining):
        schedule.step()
        seen.append(schedule.get_last_lr()[0])
    return [round(float(rate), 4) for rate in seen]


def test_a_curve_is_stretched_from_its_position_without_a_jump() -> None:
    def linear(**options: Any) -> list[float]:
        return stretched(Linear(optimizer_of(), 4, **options), 2, 4)

    assert linear() == [1, 0.75, 0.5, 0.375, 0.25, 0.125, 0]
    assert stretched(Linear(optimizer_of(), 8), 4, 2) == [1, 0.875, 0.75, 0.625, 0.5, 0.25, 0]
    # in the warmup and in the stable part, only the end moves
    assert linear(warmup=3) == [0.25, 0.5, 0.75, 1, 0.6667, 0.3333, 0]
    stable = stretched(WarmupStableDecay(optimizer_of(), 8, decay=0.25), 4, 12)
    assert stable == [*[1.0] * 13, 0.75, 0.5, 0.25, 0]
    # shortened into its decay, it decays from here
    short = stretched(WarmupStableDecay(optimizer_of(), 8, decay=4), 4, 2)
    assert short == [1, 1, 1, 1, 1, 0.5, 0]


def test_a_curve_can_be_stretched_twice_and_after_a_resume() -> None:
    schedule = Linear(optimizer_of(), 4)
    schedule.optimizer.step()
    for remaining in (6, 4):
        schedule.step()
        schedule.step()
        schedule.stretch(remaining)
        other = Linear(optimizer_of(), 99)
        other.load_state_dict(schedule.state_dict())
        assert other.factor(other.last_epoch) == schedule.factor(schedule.last_epoch)
        schedule = other
    assert [round(schedule.factor(step), 4) for step in range(4, 9)] == [0.3333, 0.25, 0.1667, 0.0833, 0]

"""A warmup multiplies the rates that any other schedulers set, whatever they step after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    MultiStepLR,
    OneCycleLR,
    ReduceLROnPlateau,
    StepLR,
)
from torch.utils.data import DataLoader, IterableDataset

from hookline import Hook, Optim, Runner, TrainLoop
from hookline.engine.steps import cross_entropy
from hookline.errors import ConfigError
from hookline.schedules import Cosine, Warmup
from hookline.testing import toy_data, toy_model, toy_runner
from tests.optim.test_schedules import optimizer_of, run


def never_pleased(optimizer: SGD) -> ReduceLROnPlateau:
    """Return a scheduler that reduces the rate after every validation."""
    scheduler = ReduceLROnPlateau(optimizer, "max", 0.5, patience=0)
    scheduler.best = 1e9
    return scheduler


RAMP = [1 / 7, 2 / 7, 3 / 7, 4 / 7, 5 / 7, 6 / 7, 1, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda one: StepLR(one, 1, 0.5),
        lambda one: MultiStepLR(one, [1], 0.5),
        lambda one: (ExponentialLR(one, 0.9), "iter"),
        lambda one: LambdaLR(one, lambda epoch: 0.5**epoch),
        lambda one: (CosineAnnealingLR(one, 8), "iter"),
        lambda one: (OneCycleLR(one, 0.1, total_steps=8), "iter"),
        lambda one: ChainedScheduler([ConstantLR(one, 0.5, 1), StepLR(one, 1)]),
        lambda one: never_pleased(one),
        lambda one: Cosine(one, end_factor=0.5),
    ],
)
@pytest.mark.parametrize("first", [False, True])
def test_the_rates_equal_the_scheduler_times_a_ramp(make: Any, first: bool) -> None:
    def warmed(one: SGD) -> list[Any]:
        warmup: list[Any] = [Warmup(one, 6)] if first else []
        return [*warmup, make(one), *([] if first else [Warmup(one, 0.75)])]

    _, alone = run(lambda one: [make(one)])
    _, both = run(warmed)
    assert both.first == pytest.approx([rate * factor for rate, factor in zip(alone.first, RAMP, strict=True)])
    assert both.first[6:] == alone.first[6:]  # after the warmup, exactly


def test_a_warmup_can_count_optimizer_steps_or_epochs() -> None:
    _, steps = run(lambda one: [(Warmup(one, 3), "step")], accumulate=2)
    assert steps.first == [0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1, 1]
    _, epochs = run(lambda one: [(Warmup(one, 1), "epoch")])
    assert epochs.first == [0.5] * 4 + [1] * 4


def test_a_rate_that_a_hook_sets_stays() -> None:
    class Halves(Hook):
        def after_train_iter(self, runner: Runner) -> None:
            if runner.iter == 1:
                for group in runner.optims.sole.optimizer.param_groups:
                    group["lr"] /= 2

    model = toy_model()
    optimizer = optimizer_of(model)
    seen: list[float] = []
    runner = toy_runner(
        model=model,
        optim=Optim(optimizer, [StepLR(optimizer, 1, 0.5), Warmup(optimizer, 3)]),
        custom_hooks=[Halves()],
        max_epochs=2,
    )
    runner.on("before_train_iter")(lambda runner: seen.append(runner.optims.sole.learning_rates()[0]))
    runner.train()
    assert seen == [0.25, 0.5, 0.375, 0.5, 0.25, 0.25, 0.25, 0.25]


def test_rates_that_are_tensors_are_changed_in_place() -> None:
    model, rate = toy_model(), torch.tensor(1.0)
    optimizer = SGD(model.parameters(), lr=rate)
    seen: list[float] = []
    runner = toy_runner(model=model, optim=Optim(optimizer, [Warmup(optimizer, 3)]), max_epochs=1)
    runner.on("before_train_iter")(lambda: seen.append(rate.item()))
    runner.train()
    assert seen == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (
            -1,
            "Warmup: steps must be a number of steps, an int of at least 0, or a share of the run, a number below 1, "
            "not -1",
        ),
        (
            500.0,
            "Warmup: steps is 500.0, which is neither a share of the run, a number below 1 such as 0.05, nor a number "
            "of steps, an int such as 500; write one of these",
        ),
        (
            500,
            "Warmup: steps is 500 iterations, but there are only 8; use a lower number, or a share of the run such as "
            "0.05, which fits any length",
        ),
    ],
)
def test_nonsense_is_refused_before_the_first_step(steps: float, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        run(lambda one: [Warmup(one, steps)])
    assert str(refused.value) == message


def test_wrong_places_are_refused() -> None:
    optimizer = optimizer_of()
    with pytest.raises(ConfigError) as refused:
        Optim(optimizer, [Warmup(optimizer, 1), Warmup(optimizer, 2)])
    assert str(refused.value) == (
        "an Optim can have one Warmup, which applies to all of its schedulers; remove the others"
    )
    with pytest.raises(ConfigError) as refused:
        Optim(optimizer, [ChainedScheduler([StepLR(optimizer, 1), Warmup(optimizer, 2)])])
    assert str(refused.value) == (
        "a Warmup cannot be inside ChainedScheduler, which sets the rate itself; put it next to it: "
        "Optim(optimizer, schedulers=[ChainedScheduler(...), Warmup(...)])"
    )
    with pytest.raises(ConfigError) as refused:
        Optim(optimizer, [(Warmup(optimizer, 2), "val")])
    assert str(refused.value) == "Warmup: a warmup steps at 'iter', 'step' or 'epoch', not at 'val'"
    with pytest.raises(ConfigError) as refused:
        Warmup(optimizer, 2).step()
    assert str(refused.value) == (
        "a Warmup works only in an Optim of a Runner, which starts it: Optim(schedulers=[...])"
    )


def test_data_without_a_length_can_have_a_warmup_of_steps(tmp_path: Path) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(toy_data())

    def train(steps: float) -> list[float]:
        model = toy_model()
        optimizer = optimizer_of(model)
        loop = TrainLoop(DataLoader(Stream(), batch_size=None), cross_entropy, max_epochs=1)
        optim = Optim(optimizer, [Warmup(optimizer, steps)])
        runner = Runner(model, train=loop, optim=optim, work_dir=tmp_path, quiet=True)
        seen: list[float] = []
        runner.on("before_train_iter")(lambda: seen.append(optimizer.param_groups[0]["lr"]))
        runner.train()
        return seen

    assert train(3) == [0.25, 0.5, 0.75, 1.0]
    with pytest.raises(ConfigError) as refused:
        train(0.5)
    assert str(refused.value) == (
        "Warmup: a share of the training needs the length of the loader, which has none; set a number of steps"
    )


def test_training_twice_warms_up_once() -> None:
    runner, rates = run(lambda one: [Warmup(one, 4)], max_epochs=1)
    runner.train_loop.max_epochs = 2
    runner.train()
    assert rates.first == [0.2, 0.4, 0.6, 0.8, 1, 1, 1, 1]

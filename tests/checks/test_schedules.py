"""Schedules that do not fit the run are refused or reported before the first step, with what to write instead."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.optim import SGD
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)
from torch.utils.data import DataLoader, IterableDataset

from hookline import EvalLoop, Hook, Optim, Runner, TrainLoop
from hookline.checks.schedules import check_schedules
from hookline.engine.loop_specs import TrainLoop as Loop
from hookline.engine.steps import cross_entropy
from hookline.errors import ConfigError
from hookline.hooks import ParamSchedulerHook
from hookline.schedules import Constant, Cosine, Linear, Warmup, WarmupStableDecay
from hookline.testing import toy_data, toy_model, toy_runner
from tests.checks.test_optimizers import refusal


def reported(
    make: Any, caplog: pytest.LogCaptureFixture, config: dict[str, Any] | None = None, **options: Any
) -> list[str]:
    """Return the warnings about the schedulers that `make(optimizer)` returns, without training."""
    model = toy_model()
    optimizer = SGD(model.parameters(), lr=1.0)
    given = make(optimizer)
    runner = toy_runner(
        model=model,
        optim=Optim(optimizer, given if isinstance(given, list) else [given]),
        config=config,
        **(options or {"max_epochs": 5}),
    )
    runner._host.stages.prepare("train")
    caplog.clear()
    with caplog.at_level(logging.WARNING, "hookline"):
        check_schedules(runner._host)
    return [record.getMessage() for record in caplog.records]


EPOCHS = "it steps after every epoch, 5 times in this run"
ITERATIONS = "it steps after every iteration, 20 times in this run"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda one: OneCycleLR(one, 1.0, total_steps=20),
            f"OneCycleLR: total_steps is 20, but {EPOCHS}, so it never reaches its end. 20 is the number of "
            "iterations: write (scheduler, 'iter')",
        ),
        (
            lambda one: (OneCycleLR(one, 1.0, total_steps=99), "iter"),
            f"OneCycleLR: total_steps is 99, but {ITERATIONS}, so it never reaches its end. Write total_steps=20",
        ),
        (
            lambda one: CyclicLR(one, 0.1, 1.0),
            f"CyclicLR: step_size_up is 2,000, but {EPOCHS}, so it never reaches max_lr. Use a lower number",
        ),
        (
            lambda one: CosineAnnealingLR(one, 20),
            f"CosineAnnealingLR: T_max is 20, but {EPOCHS}, so it never reaches its end. 20 is the number of "
            "iterations: write (scheduler, 'iter')",
        ),
        (
            lambda one: CosineAnnealingLR(one, 100),
            f"CosineAnnealingLR: T_max is 100, but {EPOCHS}, so it never reaches its end. Write T_max=5",
        ),
        (
            lambda one: CosineAnnealingLR(one, 12),
            f"CosineAnnealingLR: T_max is 12, but {EPOCHS}, so it never reaches its end. If it counts iterations, "
            "write (scheduler, 'iter'); otherwise, write T_max=5",
        ),
        (
            lambda one: (CosineAnnealingLR(one, 5), "iter"),
            f"CosineAnnealingLR: T_max is 5, but {ITERATIONS}, so the rate rises again after its end. 5 is the number "
            "of epochs: write (scheduler, 'epoch')",
        ),
        (
            lambda one: (CosineAnnealingLR(one, 10), "iter"),
            f"CosineAnnealingLR: T_max is 10, but {ITERATIONS}, so the rate rises again after its end. Write T_max=20",
        ),
        (
            lambda one: LinearLR(one, 0.1, total_iters=10),
            f"LinearLR: total_iters is 10, but {EPOCHS}, so it never reaches its end. If it counts iterations, write "
            "(scheduler, 'iter'); otherwise, write total_iters=5",
        ),
        (
            lambda one: ConstantLR(one, 0.1, 10),
            f"ConstantLR: total_iters is 10, but {EPOCHS}, so the rate never returns to its full value. If it counts "
            "iterations, write (scheduler, 'iter'); otherwise, write total_iters=5",
        ),
        (
            lambda one: (PolynomialLR(one, 5), "iter"),
            f"PolynomialLR: total_iters is 5, but {ITERATIONS}, so the rate is 0 after its end. 5 is the number of "
            "epochs: write (scheduler, 'epoch')",
        ),
        (
            lambda one: CosineAnnealingWarmRestarts(one, 10),
            f"CosineAnnealingWarmRestarts: T_0 is 10, but {EPOCHS}, so it never restarts. If it counts iterations, "
            "write (scheduler, 'iter'); otherwise, write T_0=5",
        ),
        (
            lambda one: StepLR(one, 30),
            f"StepLR: step_size is 30, but {EPOCHS}, so it never changes the rate. Use a lower number",
        ),
        (
            lambda one: MultiStepLR(one, [30, 60]),
            f"MultiStepLR: milestones is [30, 60], but {EPOCHS}, so it never changes the rate. Use a lower number",
        ),
        (
            lambda one: MultiStepLR(one, [2, 8]),
            f"MultiStepLR: milestones is [2, 8], but {EPOCHS}, so [8] is never reached. If it counts iterations, write "
            "(scheduler, 'iter'); otherwise, use a lower number",
        ),
        (
            lambda one: SequentialLR(one, [ConstantLR(one), StepLR(one, 1)], [10]),
            f"SequentialLR: milestones is [10], but {EPOCHS}, so it never changes the rate. If it counts iterations, "
            "write (scheduler, 'iter'); otherwise, use a lower number",
        ),
        (
            lambda one: Cosine(one, 100),
            f"Cosine: length is 100, but {ITERATIONS}, so it never reaches its end. Write length=20",
        ),
        (
            lambda one: Linear(one, 10),
            f"Linear: length is 10, but {ITERATIONS}, so the rate is 0 after its end. Write length=20",
        ),
        (
            lambda one: ReduceLROnPlateau(one, "max", patience=4),
            "ReduceLROnPlateau: patience is 4, but this run has only 5 validations, so it never changes the rate. Use "
            "a lower number, or validate more often: val_interval",
        ),
        (
            lambda one: [Cosine(one), StepLR(one, 2)],
            "StepLR: Cosine sets the rate itself, so changes that StepLR makes are lost. Use one of them",
        ),
        (
            lambda one: [Cosine(one), Warmup(one, 2), Linear(one)],
            "Cosine: Linear sets the rate itself, so changes that Cosine makes are lost. Use one of them",
        ),
    ],
)
def test_a_schedule_that_does_not_fit_is_reported(make: Any, message: str, caplog: pytest.LogCaptureFixture) -> None:
    assert reported(make, caplog) == [message]


WRONG_WAY = "ReduceLROnPlateau: mode is '{}', but a {} {} is better, so the rate is reduced while {} improves. Write {}"


def test_a_plateau_in_the_wrong_direction_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def plateau(mode: Literal["min", "max"], *monitor: str) -> Any:
        return lambda one: (ReduceLROnPlateau(one, mode, patience=0), "val", *monitor)

    higher = WRONG_WAY.format("min", "higher", *["accuracy"] * 2, "mode='max'")
    assert reported(plateau("min", "accuracy"), caplog) == [higher]
    assert reported(plateau("min"), caplog) == [higher]
    assert reported(plateau("min"), caplog, {"seed": 0}) == [higher.replace("mode='max'", "'mode: max'")]
    lower = WRONG_WAY.format("max", "lower", *["clean/loss"] * 2, "mode='min'")
    val = {"clean": EvalLoop(toy_data(2), loss=cross_entropy)}
    assert reported(plateau("max"), caplog, max_epochs=5, val=val) == [lower]
    for fine in (plateau("max", "accuracy"), plateau("max"), plateau("min", "loss"), plateau("min", "speed")):
        assert reported(fine, caplog) == []


NO_HOOK: dict[str, Any] = {"max_epochs": 5, "default_hooks": {"param_scheduler": None}}


def test_a_schedule_that_no_hook_steps_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    message = (
        "Cosine, Warmup never steps, because this run has no ParamSchedulerHook, so the rate does not change. Remove "
        "{} from default_hooks, or, if the rate is to stay as it is, remove the scheduler"
    )

    def schedules(one: SGD) -> list[LRScheduler]:
        return [Cosine(one), Warmup(one, 2)]

    assert reported(schedules, caplog, **NO_HOOK) == [message.format("'param_scheduler': None")]
    assert reported(schedules, caplog, {"seed": 0}, **NO_HOOK) == [message.format("'param_scheduler: null'")]


def test_a_schedule_that_the_users_code_steps_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    class Steps(Hook):
        def after_train_epoch(self, runner: Runner) -> None:
            for scheduled in runner.optims.sole.schedulers:
                scheduled.step()

    class Mine(ParamSchedulerHook):
        pass

    def step(model: Any, batch: Any, optim: Any) -> None:
        optim.update(cross_entropy(model, batch))
        optim.schedulers[0].step()

    assert reported(Cosine, caplog, **NO_HOOK, custom_hooks=[Steps()]) == []
    assert reported(Cosine, caplog, **NO_HOOK, custom_hooks=[Mine()]) == []
    assert reported(Cosine, caplog, **NO_HOOK, step=step) == []
    assert reported(lambda one: [], caplog, **NO_HOOK) == []


def test_for_a_config_the_message_says_what_to_write(caplog: pytest.LogCaptureFixture) -> None:
    assert reported(lambda one: CosineAnnealingLR(one, 12), caplog, {"seed": 0}) == [
        f"CosineAnnealingLR: T_max is 12, but {EPOCHS}, so it never reaches its end. If it counts iterations, write "
        "'when: iter'; otherwise, write 'T_max: auto'"
    ]


def test_a_schedule_by_epochs_in_training_by_iterations_never_fires(caplog: pytest.LogCaptureFixture) -> None:
    assert reported(lambda one: (StepLR(one, 1), "epoch"), caplog, max_iters=20) == [
        "StepLR: it steps after every epoch, but this run trains by iterations and counts as one epoch, so it never "
        "changes the rate. Write (scheduler, 'iter')"
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda one: CosineAnnealingLR(one, 5),
        lambda one: CosineAnnealingLR(one, 6),  # close enough
        lambda one: (CosineAnnealingLR(one, 20), "iter"),
        lambda one: (CosineAnnealingLR(one, 18), "iter"),
        lambda one: (OneCycleLR(one, 1.0, total_steps=20), "iter"),
        lambda one: (OneCycleLR(one, 1.0, total_steps=5), "epoch"),  # on purpose
        lambda one: (CyclicLR(one, 0.1, 1.0, step_size_up=2), "epoch"),
        lambda one: (CyclicLR(one, 0.1, 1.0, step_size_up=4), "iter"),
        lambda one: CosineAnnealingWarmRestarts(one, 2, 2),
        lambda one: (CosineAnnealingWarmRestarts(one, 5), "iter"),
        lambda one: StepLR(one, 2),
        lambda one: (StepLR(one, 2, 0.9), "iter"),
        lambda one: MultiStepLR(one, [2, 4]),
        lambda one: (LinearLR(one, total_iters=4), "iter"),
        lambda one: LambdaLR(one, lambda epoch: 1.0),
        lambda one: ReduceLROnPlateau(one, "max", patience=3),
        lambda one: ReduceLROnPlateau(one, "max", patience=2),
        lambda one: SequentialLR(one, [LinearLR(one, total_iters=2), CosineAnnealingLR(one, 3)], [2]),
        lambda one: ChainedScheduler([LinearLR(one, total_iters=2), CosineAnnealingLR(one, 3)]),
        lambda one: [Cosine(one, warmup=0.1)],
        lambda one: [Cosine(one, 10, end_factor=0.1)],
        lambda one: [Constant(one, 3, warmup=3)],
        lambda one: [WarmupStableDecay(one)],
        lambda one: [StepLR(one, 2), Warmup(one, 3)],
        lambda one: [ReduceLROnPlateau(one, "max", patience=0), Warmup(one, 0.1)],
    ],
)
def test_a_sensible_schedule_is_not_reported(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert reported(make, caplog) == []


def test_the_optim_is_named_and_a_resumed_run_reports_nothing(tmp_path: Path) -> None:
    def step(model: Any, batch: Any, optim: Any) -> None:
        optim["net"].update(cross_entropy(model, batch))

    def runner(**options: Any) -> Runner:
        model = toy_model()
        optimizer = SGD(model.parameters(), lr=0.1)
        return toy_runner(
            model=model,
            optim={"net": Optim(optimizer, [StepLR(optimizer, 9)])},
            step=step,
            work_dir=tmp_path,
            **options,
        )

    message = (
        "optim 'net': StepLR: step_size is 9, but it steps after every epoch, once in this run, so it never changes "
        "the rate. Use a lower number"
    )
    runner(max_epochs=1).train()
    assert (tmp_path / "run.log").read_text().count(message) == 1
    runner(max_epochs=2, resume=True).train()
    assert (tmp_path / "run.log").read_text().count("StepLR: ") == 1


def test_a_dry_run_checks_the_length_of_the_real_run(tmp_path: Path) -> None:
    model = toy_model()
    optimizer = SGD(model.parameters(), lr=1.0)
    optim = Optim(optimizer, [CosineAnnealingLR(optimizer, 5)])
    runner = toy_runner(model=model, optim=optim, max_epochs=5, work_dir=tmp_path)
    runner._host.shorten(2)
    runner.train()
    assert "CosineAnnealingLR" not in (tmp_path / "run.log").read_text()
    short = with_one_cycle(19, "iter", max_epochs=5)
    short._host.shorten(2)
    assert refusal(short).startswith("OneCycleLR has 19 steps, but this run needs 20: it steps after every iteration.")


@pytest.mark.parametrize(
    ("options", "validations"),
    [
        ({"max_epochs": 5}, 5),
        ({"max_epochs": 5, "val_interval": 2}, 3),
        ({"max_epochs": 6, "val_interval": 2, "val_begin": 3}, 2),
        ({"max_epochs": 5, "val_begin": 9}, 1),
        ({"max_epochs": 5, "val_begin": 0}, 6),
        ({"max_iters": 2500}, 3),
        ({"max_iters": 20, "val_interval": 10}, 2),
    ],
)
def test_the_number_of_validations_is_known(options: dict[str, Any], validations: int) -> None:
    assert Loop(toy_data(), cross_entropy, **options).total_validations == validations


# -- cycles that are too short are refused


def with_one_cycle(steps: int, when: str, accumulate: int = 1, **options: Any) -> Runner:
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedulers = [(OneCycleLR(optimizer, 0.1, total_steps=steps), when)]
    return toy_runner(model=model, optim=Optim(optimizer, schedulers, accumulate=accumulate), **options)


@pytest.mark.parametrize(
    ("when", "needed", "unit", "options"),
    [
        ("epoch", 3, "epoch", {"max_epochs": 3}),
        ("iter", 12, "iteration", {"max_epochs": 3}),
        ("iter", 10, "iteration", {"max_iters": 10}),
        ("step", 6, "optimizer step", {"max_epochs": 3, "accumulate": 3}),
        ("step", 4, "optimizer step", {"max_iters": 10, "accumulate": 3}),
    ],
)
def test_a_cycle_with_too_few_steps_is_refused(when: str, needed: int, unit: str, options: dict[str, Any]) -> None:
    assert refusal(with_one_cycle(needed - 1, when, **options)) == (
        f"OneCycleLR has {needed - 1} steps, but this run needs {needed}: it steps after every {unit}. "
        f"Set total_steps to {needed}"
    )
    runner = with_one_cycle(needed, when, **options)
    runner.train()
    assert runner.optims.sole.schedulers[0].scheduler.last_epoch == needed


def test_a_schedule_that_stays_at_its_end_may_be_short() -> None:
    class Falling(LRScheduler):
        def __init__(self, optimizer: Any, total_steps: int) -> None:
            self.total_steps = total_steps
            super().__init__(optimizer)

        def get_lr(self) -> list[float | Tensor]:
            return [rate * max(0.5, 1 - self.last_epoch / self.total_steps) for rate in self.base_lrs]

    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    toy_runner(model=model, optim=Optim(optimizer, [(Falling(optimizer, 3), "iter")])).train()
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_a_cycle_that_was_long_enough_is_refused_when_the_run_is_resumed_with_more_epochs(tmp_path: Path) -> None:
    with_one_cycle(2, "epoch", max_epochs=2, work_dir=tmp_path).train()
    with pytest.raises(ConfigError) as refused:  # the checkpoint restores the length of the cycle
        with_one_cycle(4, "epoch", max_epochs=4, work_dir=tmp_path, resume=True).train()
    assert str(refused.value) == (
        "OneCycleLR has 2 steps, but this run needs 4: it steps after every epoch. The length comes from the "
        "checkpoint and cannot grow; train only to its end, or start a new run from its weights (load_from)"
    )


def test_a_short_cycle_inside_other_schedulers_is_refused() -> None:
    def runner_with(steps: int, kind: str) -> Runner:
        model = toy_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        cycle = OneCycleLR(optimizer, 0.1, total_steps=steps)
        scheduler: LRScheduler = ChainedScheduler([ConstantLR(optimizer), cycle])
        if kind == "last":
            scheduler = SequentialLR(optimizer, [ConstantLR(optimizer), cycle], [2])
        elif kind == "middle":
            scheduler = SequentialLR(optimizer, [ConstantLR(optimizer), cycle, ConstantLR(optimizer)], [2, 5])
        elif kind == "first":
            scheduler = SequentialLR(optimizer, [cycle, ConstantLR(optimizer)], [5])
        return toy_runner(model=model, optim=Optim(optimizer, [(scheduler, "iter")]))

    for kind, needed in {"chained": 8, "last": 6, "middle": 2, "first": 4}.items():
        assert refusal(runner_with(needed - 1, kind)) == (
            f"OneCycleLR has {needed - 1} steps, but this run needs {needed}: it steps after every iteration. "
            f"Set total_steps to {needed}"
        )
        runner_with(needed, kind).train()


def test_a_cycle_that_ends_early_in_data_without_a_length_ends_with_a_clear_error(tmp_path: Path) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(toy_data())

    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optim = Optim(optimizer, [(OneCycleLR(optimizer, 0.1, total_steps=5), "iter")])
    loop = TrainLoop(DataLoader(Stream(), batch_size=None), cross_entropy, max_epochs=2)
    runner = Runner(model, train=loop, optim=optim, work_dir=tmp_path, quiet=True)
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert str(refused.value) == (
        "OneCycleLR has 5 steps, but this run needs more: it steps after every iteration. Set total_steps to the "
        "number of iterations of the whole training"
    )


def test_a_cycle_with_the_number_of_epochs_says_so() -> None:
    assert refusal(with_one_cycle(3, "iter", max_epochs=3)) == (
        "OneCycleLR has 3 steps, but this run needs 12: it steps after every iteration. Set total_steps to 12 (3 is "
        "the number of epochs, but this scheduler is made for iterations)"
    )

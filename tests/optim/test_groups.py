"""Schedulers follow the groups that a hook adds to their optimizer, or refuse them by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler
from torch.optim.swa_utils import SWALR

from hookline import Hook, Optim, Runner
from hookline.errors import HookError
from hookline.schedules import Constant, Cosine, Linear, Warmup, WarmupStableDecay
from hookline.testing import toy_model, toy_runner
from tests.state.stopping import StopsAt

Make = Callable[[torch.optim.Optimizer], Any]


class Decay:
    """A function of LambdaLR whose state is saved."""

    def __init__(self) -> None:
        self.rate = 0.5

    def __call__(self, step: int) -> float:
        return self.rate**step


#: The schedulers, and the rates of a group that joins with lr 0.08 before iteration 2: in iterations 2, 3, 4 and 5. The
#: other group began with 0.1.
SCHEDULERS: dict[str, tuple[Make, list[float]]] = {
    "lambda": (lambda optim: lr_scheduler.LambdaLR(optim, lambda step: 0.5**step), [0.02, 0.01, 0.005, 0.0025]),
    "object": (lambda optim: lr_scheduler.LambdaLR(optim, Decay()), [0.02, 0.01, 0.005, 0.0025]),
    "multiplicative": (lambda optim: lr_scheduler.MultiplicativeLR(optim, lambda _: 0.5), [0.08, 0.04, 0.02, 0.01]),
    "step": (lambda optim: lr_scheduler.StepLR(optim, 4, 0.5), [0.08, 0.08, 0.04, 0.04]),
    "multi_step": (lambda optim: lr_scheduler.MultiStepLR(optim, [4], 0.5), [0.08, 0.08, 0.04, 0.04]),
    "constant": (lambda optim: lr_scheduler.ConstantLR(optim, 0.5, 4), [0.08, 0.08, 0.16, 0.16]),
    "linear": (lambda optim: lr_scheduler.LinearLR(optim, 0.5, total_iters=2), [0.08] * 4),
    "exponential": (lambda optim: lr_scheduler.ExponentialLR(optim, 0.5), [0.08, 0.04, 0.02, 0.01]),
    "polynomial": (lambda optim: lr_scheduler.PolynomialLR(optim, 6), [0.08, 0.06, 0.04, 0.02]),
    "cosine": (lambda optim: lr_scheduler.CosineAnnealingLR(optim, 4), [0.08, 0.0234315, 0, 0.0117157]),
    "restarts": (lambda optim: lr_scheduler.CosineAnnealingWarmRestarts(optim, 4), [0.04, 0.0117157, 0.08, 0.0682843]),
    "swa": (lambda optim: SWALR(optim, 0.01, 4, "linear"), [0.08, 0.045, 0.01, 0.01]),
    "sequential": (
        lambda optim: lr_scheduler.SequentialLR(
            optim, [lr_scheduler.ConstantLR(optim, 0.5, 9), lr_scheduler.LambdaLR(optim, lambda step: 0.5**step)], [4]
        ),
        [0.08, 0.08, 0.08, 0.04],
    ),
    "chained": (
        lambda optim: lr_scheduler.ChainedScheduler(
            [lr_scheduler.ConstantLR(optim, 0.5, 3), lr_scheduler.ExponentialLR(optim, 0.5)], optimizer=optim
        ),
        [0.08, 0.08, 0.04, 0.02],
    ),
    "ours_constant": (lambda optim: Constant(optim, warmup=4), [0.048, 0.064, 0.08, 0.08]),
    "ours_linear": (lambda optim: Linear(optim, length=8), [0.06, 0.05, 0.04, 0.03]),
    "ours_cosine": (lambda optim: Cosine(optim, length=4), [0.04, 0.0117157, 0, 0]),
    "ours_decay": (lambda optim: WarmupStableDecay(optim, length=8, decay=4), [0.08, 0.08, 0.08, 0.06]),
}


ONE_CYCLE = [0.1988831, 0.1797133, 0.1411289, 0.0925274]


class Adds(Hook):
    """Adds the last layer before iteration 2, and records the rates of its group."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.rates: list[float] = []

    def before_train_iter(self, runner: Any) -> None:
        if runner.iter == 2:
            runner.optim.optimizer.add_param_group({"params": list(runner.model[2].parameters()), **self.options})

    def before_optimizer_step(self, runner: Any) -> None:
        groups = runner.optim.optimizer.param_groups
        self.rates += [round(float(group["lr"]), 7) for group in groups[1:]]


def run(make: Make, hook: Hook, *hooks: Any, folder: Path | None = None, warmup: int = 0, **parts: Any) -> Runner:
    model = toy_model()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9)
    schedulers = [(make(optimizer), "iter"), *([Warmup(optimizer, warmup)] if warmup else [])]
    parts = {"model": model, "optim": Optim(optimizer, schedulers), "max_iters": 6, "work_dir": folder, **parts}
    runner = toy_runner(custom_hooks=[hook, *hooks], **parts)
    runner.train()
    return runner


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("stop", [1, 3, 4])
def test_a_group_that_a_hook_adds_follows_the_scheduler_and_a_resume_is_exact(
    tmp_path: Path, name: str, stop: int
) -> None:
    make, rates = SCHEDULERS[name]
    hook = Adds(lr=0.08)
    whole = run(make, hook)
    assert hook.rates == rates
    run(make, first := Adds(lr=0.08), StopsAt(stop), folder=tmp_path)
    resumed = run(make, second := Adds(lr=0.08), folder=tmp_path, resume=True)
    assert first.rates + second.rates == rates
    ours, theirs = resumed.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


@pytest.mark.parametrize(
    ("make", "rates"),
    [
        (lambda optim: lr_scheduler.OneCycleLR(optim, 0.2, 9), ONE_CYCLE),
        (lambda optim: lr_scheduler.CyclicLR(optim, 0.1, 0.4, 3), [0.3, 0.4, 0.3, 0.2]),
    ],
    ids=["one_cycle", "cyclic"],
)
def test_a_scheduler_that_sets_rates_gives_a_group_without_lr_the_rates_of_the_others(
    tmp_path: Path, make: Make, rates: list[float]
) -> None:
    class Compares(Hook):
        def before_optimizer_step(self, runner: Any) -> None:
            groups = runner.optim.optimizer.param_groups
            assert all((each["lr"], each["momentum"]) == (groups[0]["lr"], groups[0]["momentum"]) for each in groups)

    run(make, hook := Adds(), Compares())
    assert hook.rates == rates
    run(make, first := Adds(), StopsAt(4), folder=tmp_path)
    run(make, second := Adds(), Compares(), folder=tmp_path, resume=True)
    assert first.rates + second.rates == rates


def test_a_one_cycle_follows_the_rates_that_a_group_brings() -> None:
    brings = {"initial_lr": 0.01, "max_lr": 0.1, "min_lr": 0.001}
    run(lambda optim: lr_scheduler.OneCycleLR(optim, 0.2, 9), hook := Adds(**brings))
    assert hook.rates[0] == 0.0994471


def test_a_group_that_joins_after_an_iteration_is_known_to_a_scheduler_that_steps_after_it() -> None:
    class AddsLate(Adds):
        def before_train_iter(self, runner: Any) -> None:
            pass

        def after_train_iter(self, runner: Any) -> None:
            if runner.iter == 1:
                runner.optim.optimizer.add_param_group({"params": list(runner.model[2].parameters()), "lr": 0.08})

    run(SCHEDULERS["lambda"][0], hook := AddsLate())
    assert hook.rates == SCHEDULERS["lambda"][1]


@pytest.mark.parametrize(
    ("name", "rates"), [("lambda", [0.012, 0.008, 0.005, 0.0025]), ("step", [0.048, 0.064, 0.04, 0.04])]
)
def test_a_warmup_holds_for_a_group_that_joins_in_it(tmp_path: Path, name: str, rates: list[float]) -> None:
    make = SCHEDULERS[name][0]
    whole = run(make, hook := Adds(lr=0.08), warmup=4)
    assert hook.rates == rates
    run(make, Adds(lr=0.08), StopsAt(3), warmup=4, folder=tmp_path)
    resumed = run(make, Adds(lr=0.08), warmup=4, folder=tmp_path, resume=True)
    ours, theirs = resumed.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda optim: lr_scheduler.OneCycleLR(optim, 0.2, 9),
            "OneCycleLR sets the rates of all parameter groups, so lr=0.08 of the group that was added during the run "
            "would be ignored; add it without lr, or use a scheduler that begins at the lr of a group",
        ),
        (
            lambda optim: lr_scheduler.CyclicLR(optim, 0.1, 0.4, 3),
            "CyclicLR sets the rates of all parameter groups, so lr=0.08 of the group that was added during the run "
            "would be ignored; add it without lr, or use a scheduler that begins at the lr of a group",
        ),
    ],
    ids=["one_cycle", "cyclic"],
)
def test_a_rate_that_would_be_ignored_is_refused(make: Make, message: str) -> None:
    with pytest.raises(HookError) as refused:
        run(make, Adds(lr=0.08))
    assert str(refused.value) == message


def test_functions_that_differ_between_groups_are_refused() -> None:
    model = toy_model()
    groups = [{"params": [each]} for each in model[0].parameters()]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    scheduler = lr_scheduler.LambdaLR(optimizer, [lambda _: 1.0, lambda _: 0.5])
    runner = toy_runner(model=model, optim=Optim(optimizer, [(scheduler, "iter")]), custom_hooks=[Adds()], max_iters=6)
    with pytest.raises(HookError) as refused:
        runner.train()
    assert str(refused.value) == (
        "LambdaLR has another lr_lambdas for each parameter group, so it has none for the group that was added during "
        "the run; create the optimizer with all groups, or use the same lr_lambdas for all"
    )
    assert runner.iter == 2


def test_a_group_that_a_hook_removes_is_refused_by_a_scheduler_that_cannot_follow() -> None:
    class Removes(Adds):
        def before_train_iter(self, runner: Any) -> None:
            super().before_train_iter(runner)
            if runner.iter == 4:
                runner.optim.optimizer.param_groups.pop()

    with pytest.raises(HookError) as refused:
        run(SCHEDULERS["lambda"][0], Removes(lr=0.08))
    assert str(refused.value) == (
        "LambdaLR has rates for 2 parameter groups, but 1 are left in the optimizer. Do not remove a group during a "
        "run; to stop training a parameter, freeze it: parameter.requires_grad_(False)"
    )

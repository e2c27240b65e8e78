"""ParamSchedulerHook: the learning rate of every iteration, computed by hand, also after a resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import LinearLR, LRScheduler, MultiStepLR, ReduceLROnPlateau, SequentialLR

from hookline import Hook, Optim, Runner
from hookline.testing import toy_model, toy_runner

Schedulers = Callable[[SGD], list[Any]]


class Given(Hook):
    """Returns metrics that are set by hand."""

    priority = "HIGHEST"

    def __init__(self, *values: float) -> None:
        self.values = values

    def after_val_epoch(self, runner: Runner, metrics: dict[str, Any]) -> None:
        metrics["accuracy"] = self.values[runner.validations]


def warm_up(optimizer: SGD, iterations: int = 3) -> LRScheduler:
    """Return a linear warm-up from a quarter of the rate to the full rate."""
    return LinearLR(optimizer, start_factor=0.25, total_iters=iterations)


def in_sequence(optimizer: SGD) -> LRScheduler:
    """Return a warm-up of three steps, then half the rate after two more, and a quarter after four more."""
    return SequentialLR(optimizer, [warm_up(optimizer), MultiStepLR(optimizer, [2, 4], 0.5)], milestones=[3])


def halved(optimizer: SGD, *milestones: int) -> LRScheduler:
    return MultiStepLR(optimizer, list(milestones), 0.5)


def plateau(optimizer: SGD) -> LRScheduler:
    return ReduceLROnPlateau(optimizer, "max", factor=0.5, patience=1)


PLATEAU = (0.1, 0.2, 0.2, 0.2, 0.2, 0.2, 0.3, 0.4)
IN_SEQUENCE = [0.25, 0.5, 0.75, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.25]

# Schedulers, the parts of the run, and the rate of each iteration.
RUNS: dict[str, tuple[Schedulers, dict[str, Any], list[float]]] = {
    "a sequence by iterations": (
        lambda optimizer: [in_sequence(optimizer)],
        {"max_iters": 10, "batches": 4},
        IN_SEQUENCE,
    ),
    "a sequence by iterations, training by epochs": (
        lambda optimizer: [(in_sequence(optimizer), "iter")],
        {"max_epochs": 2, "batches": 5},
        IN_SEQUENCE,
    ),
    "a sequence by epochs": (
        lambda optimizer: [in_sequence(optimizer)],
        {"max_epochs": 8, "batches": 2},
        [0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25],
    ),
    "a warm-up by iterations and milestones by epochs": (
        lambda optimizer: [(warm_up(optimizer), "iter"), (halved(optimizer, 1, 2), "epoch")],
        {"max_epochs": 3, "batches": 5},
        [0.25, 0.5, 0.75, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.25],
    ),
    "a warm-up that goes on when a milestone comes": (
        lambda optimizer: [(warm_up(optimizer, 6), "iter"), (halved(optimizer, 1), "epoch")],
        {"max_epochs": 2, "batches": 4},
        [0.25, 0.375, 0.5, 0.625, 0.375, 0.4375, 0.5, 0.5],
    ),
    "milestones by epochs, training by iterations: one long epoch": (
        lambda optimizer: [(warm_up(optimizer), "iter"), (halved(optimizer, 1), "epoch")],
        {"max_iters": 7, "batches": 2},
        [0.25, 0.5, 0.75, 1, 1, 1, 1],
    ),
    "by optimizer steps, with windows of two and a last one of one": (
        lambda optimizer: [(in_sequence(optimizer), "step")],
        {"max_epochs": 3, "batches": 5, "accumulate": 2},
        [0.25, 0.25, 0.5, 0.5, 0.75, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25],
    ),
    "by optimizer steps, with windows that go from pass to pass": (
        lambda optimizer: [(warm_up(optimizer), "step")],
        {"max_iters": 11, "batches": 4, "accumulate": 3},
        [0.25, 0.25, 0.25, 0.5, 0.5, 0.5, 0.75, 0.75, 0.75, 1, 1],
    ),
    "by a metric, after epochs": (
        lambda optimizer: [plateau(optimizer)],
        {"max_epochs": 8, "batches": 2, "custom_hooks": [Given(*PLATEAU)]},
        [1, 1, 1, 1, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25],
    ),
    "by a metric, after iterations, with a warm-up": (
        lambda optimizer: [(warm_up(optimizer), "iter"), (plateau(optimizer), "val", "accuracy")],
        {"max_iters": 14, "batches": 4, "train": {"val_interval": 2}, "custom_hooks": [Given(*PLATEAU)]},
        [0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25],
    ),
}


def run(name: str, **parts: Any) -> tuple[Runner, list[float]]:
    """Return a runner, and a list that it fills with the rate of each iteration."""
    schedulers, given, _ = RUNS[name]
    given = dict(given)
    model = toy_model()
    optimizer = SGD(model.parameters(), lr=1.0)
    optim = Optim(optimizer, schedulers(optimizer), accumulate=given.pop("accumulate", 1))
    runner = toy_runner(model=model, optim=optim, **given, **parts)
    seen: list[float] = []
    runner.on("before_train_iter")(lambda runner: seen.append(optimizer.param_groups[0]["lr"]))
    return runner, seen


@pytest.mark.parametrize("name", RUNS)
def test_every_iteration_is_made_with_exactly_this_rate(name: str) -> None:
    runner, seen = run(name)
    runner.train()
    assert seen == RUNS[name][2]
    assert runner.hub.get_scalar("train/lr").last() == seen


@pytest.mark.parametrize("save_at", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_continues_with_exactly_these_rates(tmp_path: Path, name: str, save_at: int) -> None:
    expected = RUNS[name][2]
    broken, before = run(name, work_dir=tmp_path, default_hooks={"checkpoint": {"interval": 1000}})

    @broken.on("after_train_iter")
    def save_and_stop(runner: Runner) -> None:
        if runner.iter + 1 >= save_at:
            runner.request_save()
            runner.stop("the machine is needed", for_now=True)

    broken.train()
    assert broken.iter < len(expected)
    resumed, after = run(name, work_dir=tmp_path, resume=True)
    resumed.train()
    assert len(before) == broken.iter
    assert before + after == expected
    whole, _ = run(name)
    whole.train()
    assert all(a.equal(b) for a, b in zip(resumed.model.parameters(), whole.model.parameters(), strict=True))
    assert resumed.hub.get_scalar("train/lr").last() == expected


def test_a_window_that_a_hook_left_out_is_no_step() -> None:
    name = "by optimizer steps, with windows that go from pass to pass"
    runner, seen = run(name)
    runner.on("before_optimizer_step")(lambda runner: runner.skip_step("odd") if runner.iter == 5 else None)
    runner.train()
    assert seen == [0.25, 0.25, 0.25, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.75, 0.75]


def test_groups_have_rates_of_their_own() -> None:
    model = toy_model()
    optimizer = SGD([{"params": model[0].parameters(), "lr": 4.0}, {"params": model[2].parameters(), "lr": 1.0}])
    optim = Optim(optimizer, [(in_sequence(optimizer), "iter")])
    runner = toy_runner(model=model, optim=optim, max_epochs=2, batches=5)
    seen: list[list[float]] = []
    runner.on("before_train_iter")(lambda runner: seen.append(runner.optim.learning_rates()))
    runner.train()
    assert seen == [[4 * rate, rate] for rate in IN_SEQUENCE]


def test_several_optims_step_each_in_its_own_time() -> None:
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(4, 2), "b": torch.nn.Linear(4, 2)})
    optimizers = {name: SGD(model[name].parameters(), lr=1.0) for name in model}
    optims = {
        "a": Optim(optimizers["a"], [(warm_up(optimizers["a"]), "step")], accumulate=2),
        "b": Optim(optimizers["b"], [(warm_up(optimizers["b"]), "step")]),
    }

    def step(model: Any, batch: Any, optim: Any) -> None:
        for name in model:
            optim[name].update(torch.nn.functional.cross_entropy(model[name](batch[0]), batch[1]))

    runner = toy_runner(model=model, step=step, optim=optims, max_epochs=1, batches=6, val=None)
    seen: list[tuple[float, float]] = []
    rates = [optim.learning_rates for optim in optims.values()]
    runner.on("before_train_iter")(lambda: seen.append((rates[0]()[0], rates[1]()[0])))
    runner.train()
    assert seen == [(0.25, 0.25), (0.25, 0.5), (0.5, 0.75), (0.5, 1), (0.75, 1), (0.75, 1)]


def test_a_runner_started_twice_continues_its_schedule() -> None:
    runner, seen = run("a sequence by iterations, training by epochs")
    runner.train_loop.max_epochs = 1
    runner.train()
    runner.val()
    runner.train_loop.max_epochs = 2
    runner.train()
    assert seen == IN_SEQUENCE


def test_without_the_hook_no_rate_moves() -> None:
    runner, seen = run("a sequence by iterations", default_hooks={"param_scheduler": None})
    runner.train()
    assert seen == [0.25] * 10


def test_only_the_points_of_the_schedulers_are_called() -> None:
    points = ("after_train_iter", "after_optimizer_step", "after_train_epoch", "after_val_epoch")
    called = {
        "a sequence by iterations": [True, False, False, False],
        "a sequence by epochs": [False, False, True, False],
        "by a metric, after epochs": [False, False, False, True],
        "by optimizer steps, with windows that go from pass to pass": [False, True, False, False],
        "a warm-up by iterations and milestones by epochs": [True, False, True, False],
    }
    for name, expected in called.items():
        runner, _ = run(name)
        runner.train()
        found = [[call.who for call in runner.plan.calls_at(point)] for point in points]
        assert ["ParamSchedulerHook" in who for who in found] == expected


class TakesAll(LRScheduler):
    """Records the metrics that it is stepped with."""

    takes_metrics = True

    def __init__(self, optimizer: SGD) -> None:
        self.seen: list[Any] = []
        super().__init__(optimizer)
        self.seen.clear()

    def step(self, metrics: Any = None) -> None:
        self.seen.append(None if metrics is None else dict(metrics))

    def get_lr(self) -> list[Any]:
        return [group["lr"] for group in self.optimizer.param_groups]


def test_a_scheduler_that_says_so_gets_all_metrics_and_hears_of_epochs() -> None:
    model = toy_model()
    optimizer = SGD(model.parameters(), lr=1.0)
    scheduler = TakesAll(optimizer)
    runner = toy_runner(
        model=model,
        optim=Optim(optimizer, schedulers=[scheduler]),
        custom_hooks=[Given(0.5, 0.75)],
        train={"val_interval": 2},
        max_epochs=3,
    )
    runner.train()
    assert scheduler.seen == [None, None, {"accuracy": 0.5}, None, {"accuracy": 0.75}]

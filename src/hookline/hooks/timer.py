"""IterTimerHook: measures the time of data and steps, and estimates the remaining time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hookline.plan.costs import FIRST, PERIOD, Cost
from hookline.plan.hook import Hook
from hookline.record.hub import History

if TYPE_CHECKING:
    from hookline.engine.runner import Runner

# The names of a stage's times, without the prefix.
TIMES = ("time", "data_time")


class IterTimerHook(Hook):
    """Measures the time of data and steps, and estimates the remaining training time.

    For every iteration, it records `train/data_time` and `train/time` (data and step together), and the same for `val`
    and `test`. The fact `eta` is the remaining seconds of training: the mean time per iteration since the start or the
    resume, times the remaining iterations. Validation, saving and evaluations by hooks are excluded.

    At the end, the fact `seconds_of` has the seconds of `data`, `steps`, `hooks`, `validation` and `saving`. The fact
    `seconds_of_hooks` has the seconds of every hook at each of its points. Points that are called every iteration are
    measured in one of 31 iterations and extrapolated.

    Cost: two readings of the clock and two entries in the hub per iteration.

    Example:
        from hookline.testing import toy_runner

        runner = toy_runner()
        runner.train()
        print(runner.hub.get_scalar("train/time").mean(), runner.hub.get_info("eta"))

    YAML:
        default_hooks:
          timer: {priority: NORMAL}
    """

    priority = "NORMAL"

    def __init__(self) -> None:
        self._since = 0.0
        self._paused = 0.0
        self._spent = 0.0
        self._done = 0
        #: When training began, and the time spent so far waiting for the loader, validating and saving.
        self._began = 0.0
        self._waiting = Cost()
        self._waited = self._waited_before = 0.0
        self._validated = 0.0
        self._saved = 0.0
        self._val_since = 0.0
        self._max_iters: int | None = None
        self._data_time, self._time = History(), History()

    def before_train(self, runner: Runner) -> None:
        """Start from scratch, because times of an earlier run are irrelevant."""
        self._spent, self._done = 0.0, 0
        self._began, self._validated, self._saved = time.perf_counter(), 0.0, runner.saving.seconds
        self._waiting = runner.measure_data_wait()
        self._waited = self._waited_before = self._waiting.seconds
        runner.plan.reset_costs()
        runner.plan.measure("rare")
        self._max_iters = runner.max_iters
        self._data_time, self._time = runner.hub.history("train/data_time"), runner.hub.history("train/time")
        runner.hub.update_info("eta", None, resumed=False)

    def before_train_epoch(self, runner: Runner) -> None:
        """Start measuring: from here on, training waits for the loader."""
        self._restart(runner)

    def before_val_epoch(self, runner: Runner) -> None:
        """Start measuring: from here on, the validation waits for the loader."""
        self._restart(runner)

    def before_test_epoch(self, runner: Runner) -> None:
        """Start measuring: from here on, the test waits for the loader."""
        self._restart(runner)

    def before_val(self) -> None:
        """Start measuring the validation."""
        self._val_since = time.perf_counter()

    def after_val(self, runner: Runner) -> None:
        """Add the time of the validation, and restart measuring training."""
        self._validated += time.perf_counter() - self._val_since
        self._restart(runner)

    def after_train(self, runner: Runner) -> None:
        """Record where the time went, as the facts `seconds_of` and `seconds_of_hooks`."""
        costs = runner.plan.costs(self._done)
        runner.plan.measure("none")
        runner.hub.update_info("seconds_of_hooks", costs, resumed=False)
        runner.hub.update_info("seconds_of", self._shares(runner, costs), resumed=False)

    def _shares(self, runner: Runner, costs: dict[str, dict[str, float]]) -> dict[str, float]:
        """Return how the time of training is divided. Time that belongs to nothing else counts as steps."""
        validating = sum(
            seconds for hook in costs.values() for point, seconds in hook.items() if point.split("_")[1] == "val"
        )
        parts = {
            "data": self._waiting.seconds - self._waited_before,
            "hooks": sum(sum(hook.values()) for hook in costs.values()),
            "validation": max(self._validated - validating, 0.0),
            "saving": runner.saving.seconds - self._saved,
        }
        steps = max(time.perf_counter() - self._began - sum(parts.values()), 0.0)
        return {"data": parts.pop("data"), "steps": steps, **parts}

    def before_train_iter(self, runner: Runner) -> None:
        """Record the time of the batch, which has just arrived."""
        paused = runner.seconds_waited
        if paused != self._paused:
            self._since += paused - self._paused
            self._paused = paused
        waited = self._waiting.seconds
        self._data_time.values.append(waited - self._waited)
        self._data_time.fresh += 1
        self._waited = waited

    def after_train_iter(self, runner: Runner) -> None:
        """Record the time of the iteration and the ETA."""
        now = time.perf_counter()
        taken, self._since = now - self._since, now
        self._spent += taken
        self._done += 1
        turn = self._done % PERIOD - FIRST
        if turn == 0 or turn == 1:  # the next iteration will be measured, or this one was
            runner.plan.measure("all" if turn == 0 else "rare")
        self._time.values.append(taken)
        self._time.fresh += 1
        if self._max_iters is not None:
            runner.hub.info["eta"] = self._spent / self._done * (self._max_iters - runner.position.iter - 1)

    def before_val_iter(self, runner: Runner) -> None:
        """Record the time of the batch, which has just arrived."""
        runner.hub.update_scalar("val/data_time", time.perf_counter() - self._since)

    def after_val_iter(self, runner: Runner) -> None:
        """Record the time of the batch's evaluation."""
        self._evaluated(runner, "val")

    def before_test_iter(self, runner: Runner) -> None:
        """Record the time of the batch, which has just arrived."""
        runner.hub.update_scalar("test/data_time", time.perf_counter() - self._since)

    def after_test_iter(self, runner: Runner) -> None:
        """Record the time of the batch's evaluation."""
        self._evaluated(runner, "test")

    def _evaluated(self, runner: Runner, stage: str) -> None:
        now = time.perf_counter()
        runner.hub.update_scalar(f"{stage}/time", now - self._since)
        self._since = now

    def _restart(self, runner: Runner) -> None:
        self._since = time.perf_counter()
        self._paused = runner.seconds_waited

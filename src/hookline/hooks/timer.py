"""IterTimerHook: measures the time of data and steps, and estimates the remaining time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hookline.plan.costs import Cost
from hookline.record.history import History
from hookline.run.position import Position
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from hookline.runner.runner import Runner


class IterTimerHook(Hook):
    """Measures the time of data and steps, and estimates the remaining training time.

    For every iteration, it records `train/data_time` and `train/time` (data and step together), and the same for `val`
    and `test`. The fact `eta` is the remaining seconds of training: the mean time per iteration since the start or the
    resume, times the remaining iterations. Validation, saving and evaluations by hooks are excluded.

    At the end, the fact `seconds_of` has the seconds of `data`, `steps`, `hooks`, `validation` and `saving`, and the
    fact `seconds_of_hooks` the seconds of every hook at each of its points, as `runner.costs()` shows them.

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
        #: The time spent so far waiting for the loader.
        self._waiting = Cost()
        self._waited = 0.0
        self._max_iters: int | None = None
        self._info: dict[str, Any] = {}
        self._position = Position()
        self._data_time, self._time = History(), History()

    def before_train(self, runner: Runner) -> None:
        """Start from scratch, because times of an earlier run are irrelevant."""
        self._spent, self._done = 0.0, 0
        self._waiting = runner.measure_data_wait()
        self._waited = self._waiting.seconds
        self._max_iters, self._info, self._position = runner.max_iters, runner.hub.info, runner.position
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

    def after_val(self, runner: Runner) -> None:
        """Restart measuring training."""
        self._restart(runner)

    def after_train(self, runner: Runner) -> None:
        """Record where the time went, as the facts `seconds_of` and `seconds_of_hooks`."""
        runner.hub.update_info("seconds_of_hooks", runner.plan.ledger.seconds_of_hooks(), resumed=False)
        runner.hub.update_info("seconds_of", runner.plan.ledger.seconds_of_parts(), resumed=False)

    def after_train_iter(self, runner: Runner) -> None:
        """Record the time of the iteration, the part of it that was spent waiting for the batch, and the ETA."""
        now, waited, paused = time.perf_counter(), self._waiting.seconds, runner.seconds_waited
        taken = now - self._since
        if paused != self._paused:
            taken -= paused - self._paused
            self._paused = paused
        data_time, whole = self._data_time, self._time
        data_time.values.append(waited - self._waited)
        data_time.fresh += 1
        whole.values.append(taken)
        whole.fresh += 1
        self._since, self._waited = now, waited
        self._spent = spent = self._spent + taken
        self._done = done = self._done + 1
        if self._max_iters is not None:
            self._info["eta"] = spent / done * (self._max_iters - self._position.iter - 1)

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

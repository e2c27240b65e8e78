"""IterTimerHook: how long data and steps take, and how long the run still will."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hookline.plan.costs import FIRST, PERIOD, Cost
from hookline.plan.hook import Hook
from hookline.record.hub import History

if TYPE_CHECKING:
    from hookline.engine.runner import Runner

# What a stage's times are called, behind its name.
TIMES = ("time", "data_time")


class IterTimerHook(Hook):
    """Times data and steps, and tells how long training still takes.

    Records `train/data_time` and `train/time` (data and step together) of every iteration, likewise for `val` and
    `test`, and the fact `eta`: seconds of training that are left. That is the mean time of the iterations since the
    start, or since the resume, times those that are left; validation, saving and evaluations of hooks are not counted.
    At the end, the fact `seconds_of` has the seconds of `data`, `steps`, `hooks`, `validation` and `saving`, and
    `seconds_of_hooks` those of every hook at each of its points. What comes in every iteration is measured in one of
    31, and the rest is taken to be like it.

    Cost: two readings of the clock and two entries in the hub an iteration.

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
        #: When training began, how long the loader was waited for, how long it was validated, and what saves had taken.
        self._began = 0.0
        self._waiting = Cost()
        self._waited = self._waited_before = 0.0
        self._validated = 0.0
        self._saved = 0.0
        self._val_since = 0.0
        self._max_iters: int | None = None
        self._data_time, self._time = History(), History()

    def before_train(self, runner: Runner) -> None:
        """Begin anew: times of an earlier start say nothing about this one."""
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
        """From here on the loader is waited for."""
        self._restart(runner)

    def before_val_epoch(self, runner: Runner) -> None:
        """From here on the loader is waited for."""
        self._restart(runner)

    def before_test_epoch(self, runner: Runner) -> None:
        """From here on the loader is waited for."""
        self._restart(runner)

    def before_val(self) -> None:
        """From here on it is validated."""
        self._val_since = time.perf_counter()

    def after_val(self, runner: Runner) -> None:
        """What follows is training again."""
        self._validated += time.perf_counter() - self._val_since
        self._restart(runner)

    def after_train(self, runner: Runner) -> None:
        """Where the time of training went, as the facts `seconds_of` and `seconds_of_hooks`."""
        costs = runner.plan.costs(self._done)
        runner.plan.measure("none")
        runner.hub.update_info("seconds_of_hooks", costs, resumed=False)
        runner.hub.update_info("seconds_of", self._shares(runner, costs), resumed=False)

    def _shares(self, runner: Runner, costs: dict[str, dict[str, float]]) -> dict[str, float]:
        """The parts of training's time; what is none of the others is steps."""
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
        """The batch is here."""
        paused = runner.seconds_waited
        if paused != self._paused:
            self._since += paused - self._paused
            self._paused = paused
        waited = self._waiting.seconds
        self._data_time.values.append(waited - self._waited)
        self._data_time.fresh += 1
        self._waited = waited

    def after_train_iter(self, runner: Runner) -> None:
        """The step is made."""
        now = time.perf_counter()
        taken, self._since = now - self._since, now
        self._spent += taken
        self._done += 1
        turn = self._done % PERIOD - FIRST
        if turn == 0 or turn == 1:  # the next iteration is measured, or this one was
            runner.plan.measure("all" if turn == 0 else "rare")
        self._time.values.append(taken)
        self._time.fresh += 1
        if self._max_iters is not None:
            runner.hub.info["eta"] = self._spent / self._done * (self._max_iters - runner.position.iter - 1)

    def before_val_iter(self, runner: Runner) -> None:
        """The batch is here."""
        runner.hub.update_scalar("val/data_time", time.perf_counter() - self._since)

    def after_val_iter(self, runner: Runner) -> None:
        """The batch is evaluated."""
        self._evaluated(runner, "val")

    def before_test_iter(self, runner: Runner) -> None:
        """The batch is here."""
        runner.hub.update_scalar("test/data_time", time.perf_counter() - self._since)

    def after_test_iter(self, runner: Runner) -> None:
        """The batch is evaluated."""
        self._evaluated(runner, "test")

    def _evaluated(self, runner: Runner, stage: str) -> None:
        now = time.perf_counter()
        runner.hub.update_scalar(f"{stage}/time", now - self._since)
        self._since = now

    def _restart(self, runner: Runner) -> None:
        self._since = time.perf_counter()
        self._paused = runner.seconds_waited

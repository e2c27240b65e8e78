"""IterationTimerHook: the duration of iterations and epochs."""

from __future__ import annotations

import time
from typing import Any

from hookline.common.checks import check_int
from hookline.common.numbers import as_time
from hookline.dialects.imix.engine.hooks.base_hook import HookBase


class IterationTimerHook(HookBase):
    """Records the `iter_time` of every iteration and the `epoch_time` of every epoch, and prints a summary at the end.

    `iter_time` is measured from the end of one iteration to the end of the next, so it includes all hooks in any
    order. It excludes the time spent waiting for data, which is `data_time`, and the time of saves and evaluations.

    Args:
        warmup_iter: The number of first iterations to exclude from the summary.
    """

    _cleans_up = False

    def __init__(self, warmup_iter: int = 0) -> None:
        check_int("IterationTimerHook: warmup_iter", warmup_iter, least=0)
        self.warmup_iter = warmup_iter
        self._began = self._epoch_began = self._since = self._paused = 0.0
        self._done = 0
        self._seconds = 0.0

    def before_train(self) -> None:
        """Reset the clocks."""
        self._began = time.perf_counter()
        self._done, self._seconds = 0, 0.0

    def before_train_epoch(self) -> None:
        """Start the clock of the epoch."""
        self._epoch_began = self._since = time.perf_counter()
        self._paused = self.trainer.runner.seconds_waited

    def after_train_iter(self) -> None:
        """Record the time of the iteration."""
        trainer: Any = self._trainer()  # type: ignore[misc]  # self.trainer without the cost of a property call
        now, paused = time.perf_counter(), trainer.runner.seconds_waited
        taken = now - self._since - (paused - self._paused) - trainer.data_time
        self._since, self._paused = now, paused
        self._done += 1
        if self._done > self.warmup_iter:
            self._seconds += taken
        trainer.log_buffer.put_scalar("iter_time", taken)

    def after_train_epoch(self) -> None:
        """Record the time of the epoch."""
        self.trainer.log_buffer.put_scalar("epoch_time", time.perf_counter() - self._epoch_began, is_epoch=True)

    def after_train(self) -> None:
        """Print the summary."""
        total, counted = time.perf_counter() - self._began, self._done - self.warmup_iter
        if counted > 0:
            beside = max(0.0, total - self._seconds)
            self.trainer.runner.terminal.say(
                f"{counted} iterations in {as_time(self._seconds)} ({self._seconds / counted:.4f} s each), "
                f"{as_time(total)} in total, {as_time(beside)} of it outside these iterations"
            )

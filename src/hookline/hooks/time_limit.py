"""TimeLimitHook: stops training, with a checkpoint, before a time limit is reached."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from hookline.common.checks import check_choice, check_int
from hookline.common.durations import as_duration, clock, seconds_of
from hookline.errors import ConfigError
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from hookline.run.position import Position
    from hookline.runner.runner import Runner

# The last save may take this many times as long as the longest so far, because the disks of a cluster are shared.
SAFETY = 1.5
# The minimum number of iterations that count as recent. A slow one long ago says little about the next.
RECENT = 500


def process_age() -> float:
    """Return the seconds since this process was started."""
    import psutil

    return max(0.0, time.time() - float(psutil.Process().create_time()))


class TimeLimitHook(Hook):
    """Stops training, with a checkpoint, before a wall-clock time limit is reached.

    Training stops when the next piece of work might not fit: the longest of the recent iterations (or accumulation
    windows), or a validation that is due, plus one and a half times the longest save so far. If nothing was saved after
    half of the time, a save is requested. Everything else that takes long, such as the work of other hooks after
    training, must fit into `margin`. At least one iteration always runs.

    A validation that is due is left to the resumed run, which has the full time limit again. The checkpoint is saved
    regardless of the settings of CheckpointHook.

    Time is counted from the start of the process. In a notebook, use `start: run` to count from the call of `train()`.

    Cost: one reading of the clock and a few additions per iteration.

    Example:
        from hookline.hooks import TimeLimitHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[TimeLimitHook("11h50m", margin="2m")]).train()

    YAML:
        custom_hooks:
          - {type: TimeLimitHook, limit: 11h50m, margin: 2m}

    Args:
        limit: The time limit: `11h50m`, `1d2h`, `45m`, `90s`, `11:50:00`, `1-02:00:00`, or a number of seconds.
        margin: The part of the limit to leave unused, in the same format.
        start: Count from the start of the `process` or of the `run`.
        exit_code: The exit code of `hookline train` after such a stop, so that a script knows that it must restart the
            run.
    """

    priority = "LOWEST"

    def __init__(
        self,
        limit: str | int | float,
        margin: str | int | float = "0s",
        start: Literal["process", "run"] = "process",
        exit_code: int = 0,
    ) -> None:
        self.limit = seconds_of("TimeLimitHook: limit", limit)
        self.margin = seconds_of("TimeLimitHook: margin", margin)
        if self.limit <= self.margin:
            raise ConfigError(f"TimeLimitHook: limit must be greater than the margin of {margin!r}, not {limit!r}")
        check_choice("TimeLimitHook: start", start, ("process", "run"))
        check_int("TimeLimitHook: exit_code", exit_code, least=0)
        self.start = start
        self.exit_code = exit_code
        #: When the time began; None before the first run.
        self._began: float | None = None
        self._since = self._paused = 0.0
        self._val_since: float | None = None
        self._work = Times()
        self._first = 0
        self._validation = self._save = 0.0
        self._asked_early = False

    def idle_points(self, runner: Runner) -> list[str]:
        """Return the points to skip: all of them without training."""
        points = ("before_run", "before_train", "after_train_iter", "after_train_epoch", "before_val", "after_val")
        return [] if runner.running == "train" else list(points)

    def before_run(self, runner: Runner) -> None:
        """Determine when the time began, and forget the measurements of an earlier run."""
        self._began = clock() - (process_age() if self.start == "process" else 0.0)
        self._work = Times()
        self._validation = self._save = 0.0
        self._asked_early = False

    def before_train(self, runner: Runner) -> None:
        """Start measuring iterations."""
        if self._began is None:  # registered during the run
            self.before_run(runner)
        self._since, self._paused, self._first = clock(), runner.saving.seconds, runner.iter

    def after_train_iter(self, runner: Runner) -> None:
        """Check the time, except inside an accumulation window, where a stop would have to wait.

        At the end of an epoch, `after_train_epoch` does this.
        """
        if not (runner.accumulating or (runner.ends_epoch and runner.train_loop.by_epoch)):
            self._after_work(runner, iters=1)

    def after_train_epoch(self, runner: Runner) -> None:
        """Check the time before this epoch is saved and validated."""
        if runner.train_loop.by_epoch:
            self._after_work(runner, epochs=1)

    def before_val(self, runner: Runner) -> None:
        """Start measuring the validation."""
        self._val_since = clock()

    def after_val(self, runner: Runner) -> None:
        """Check the time before training continues, but never stop before the first iteration."""
        now = clock()
        if self._began is None or self._val_since is None:  # registered during this validation
            return
        self._validation = max(self._validation, now - self._val_since)
        self._since, self._paused = now, runner.saving.seconds
        if self._work.count:
            self._decide(runner, now - self._began)

    def state_dict(self) -> dict[str, Any]:
        """Return the times of the longest save and validation, so that a resumed run need not guess."""
        return {"save": self._save, "validation": self._validation}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._save, self._validation = state["save"], state["validation"]

    def _after_work(self, runner: Runner, iters: int = 0, epochs: int = 0) -> None:
        """Measure an iteration, an accumulation window or an epoch that is finished, but not yet counted."""
        if self._began is None:
            self.before_train(runner)
            return
        now, paused = clock(), runner.saving.seconds
        self._work.add(now - self._since - (paused - self._paused))
        self._since, self._paused = now, paused
        self._decide(runner, now - self._began, iters, epochs)

    def _decide(self, runner: Runner, elapsed: float, iters: int = 0, epochs: int = 0) -> None:
        """Stop, or request the first save, if it is time."""
        self._save = max(self._save, runner.saving.took)
        if not self._save and not self._asked_early and 2 * elapsed >= self.limit:
            self._asked_early = True
            runner.request_save()
        position = runner.position
        validation = self._validation or self._estimate_validation(runner, position.iter + iters)
        most = self._work.longest + validation + (1 + SAFETY) * self._save + self.margin
        if elapsed + most <= self.limit:
            return
        batch = 0 if epochs else position.batch + iters
        ahead = replace(position, iter=position.iter + iters, epoch=position.epoch + epochs, batch=batch)
        what, takes = self._next_work(runner, ahead, validation)
        reserve = takes + SAFETY * self._save + (self._save if runner.saving.busy else 0.0) + self.margin
        if what and elapsed + reserve > self.limit:
            runner.stop(
                f"{as_duration(elapsed)} of {as_duration(self.limit)} have passed, and {as_duration(reserve)} are "
                f"reserved for {what} and a save",
                for_now=True,
                exit_code=self.exit_code,
            )
            runner.request_save()

    def _next_work(self, runner: Runner, ahead: Position, validation: float) -> tuple[str, float]:
        """Return the next piece of work after a position and its estimated time. At the end, return an empty name."""
        if runner.val_loops and runner.validation_due(ahead):
            return "the validation", validation
        if runner.train_loop.is_over(ahead):
            return "", 0.0
        return "the next iteration", self._work.longest

    def _estimate_validation(self, runner: Runner, iters: int) -> float:
        """Estimate the time of the first validation: per batch, as long as training takes on average."""
        lengths = [loop.length for loop in runner.val_loops.values()]
        made = iters - self._first
        return sum(length or 0 for length in lengths) * self._work.total / made if made > 0 else 0.0


class Times:
    """The total time of pieces of work, and the longest of the recent ones.

    The recent ones are at least the last `RECENT` and at most twice as many. So single times need not be kept.
    """

    __slots__ = ("_before", "_now", "count", "total")

    def __init__(self) -> None:
        self._before = self._now = self.total = 0.0
        self.count = 0

    def add(self, seconds: float) -> None:
        """Add the time of one piece of work."""
        if self.count % RECENT == 0:
            self._before, self._now = self._now, 0.0
        self.count += 1
        self.total += seconds
        if seconds > self._now:
            self._now = seconds

    @property
    def longest(self) -> float:
        """Return the longest recent time in seconds, or 0 if nothing was recorded yet."""
        return self._before if self._before > self._now else self._now

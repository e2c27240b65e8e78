"""TimeLimitHook: stops, with a checkpoint, before a wall-clock budget ends."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from hookline.common.checks import check_choice, check_int
from hookline.common.durations import as_duration, clock, seconds_of
from hookline.errors import ConfigError
from hookline.plan.hook import Hook

if TYPE_CHECKING:
    from hookline.engine.position import Position
    from hookline.engine.runner import Runner

# How much longer than the longest so far the last save may take: the disks of a cluster are shared.
SAFETY = 1.5
# How many iterations count as recent, at least; one slow one long ago says little about the next.
RECENT = 500


def process_age() -> float:
    """How long ago this process was started, in seconds."""
    import psutil

    return max(0.0, time.time() - float(psutil.Process().create_time()))


class TimeLimitHook(Hook):
    """Stops training, with a checkpoint, before a wall-clock budget ends.

    Such as the time limit of a batch job. It stops when what comes next might not fit: the longest of the recent
    iterations (or windows, with accumulation), or the validation that is due, and one and a half times the longest save
    so far. The first validation is taken to need as long for a batch as training does. If nothing was saved by the time
    that half of the budget is gone, a save is made then, which also tells how long one takes. What else takes long, as
    what other hooks do after training, has to fit into `margin`.

    A validation that is due is left to the run that goes on. That one, resumed, has a full budget again, and remembers
    how long saves and validations take. The checkpoint
    is there whatever CheckpointHook is told. With `val()` and `test()` this hook does nothing.

    The budget counts from the start of the process, so that imports and the preparation of data are in it; in a
    notebook, `start: run` counts from the call of `train()`. At least one iteration is made in any case.

    Cost: a reading of the clock and a few additions an iteration.

    Example:
        from hookline.hooks import TimeLimitHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[TimeLimitHook("11h50m", margin="2m")]).train()

    YAML:
        custom_hooks:
          - {type: TimeLimitHook, limit: 11h50m, margin: 2m}

    Args:
        limit: The budget: `11h50m`, `1d2h`, `45m`, `90s`, `11:50:00`, `1-02:00:00`, or a number of seconds.
        margin: How much of it to leave in any case, written likewise.
        start: What it counts from: the start of the `process`, or of the `run`.
        exit_code: What `hookline train` ends with after such a stop, so that a script knows to start it again.
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
            raise ConfigError(f"TimeLimitHook: limit must be more than the margin of {margin!r}, not {limit!r}")
        check_choice("TimeLimitHook: start", start, ("process", "run"))
        check_int("TimeLimitHook: exit_code", exit_code, least=0)
        self.start = start
        self.exit_code = exit_code
        #: When the budget began, on the clock; None before the first run.
        self._began: float | None = None
        self._since = self._paused = 0.0
        self._val_since: float | None = None
        self._work = Times()
        self._first = 0
        self._validation = self._save = 0.0
        self._asked_early = False

    def idle_points(self, runner: Runner) -> list[str]:
        """Without training, all of them."""
        points = ("before_run", "before_train", "after_train_iter", "after_train_epoch", "before_val", "after_val")
        return [] if runner.running == "train" else list(points)

    def before_run(self, runner: Runner) -> None:
        """The budget begins now, or has begun with the process; nothing is known yet about this run."""
        self._began = clock() - (process_age() if self.start == "process" else 0.0)
        self._work = Times()
        self._validation = self._save = 0.0
        self._asked_early = False

    def before_train(self, runner: Runner) -> None:
        """From here on iterations are measured."""
        if self._began is None:  # registered while the run is under way
            self.before_run(runner)
        self._since, self._paused, self._first = clock(), runner.saving.seconds, runner.iter

    def after_train_iter(self, runner: Runner) -> None:
        """Look at the clock, where a stop can act, and the end of an epoch does not follow, where it is looked at."""
        if not (runner.accumulating or (runner.ends_epoch and runner.train_loop.by_epoch)):
            self._after_work(runner, iters=1)

    def after_train_epoch(self, runner: Runner) -> None:
        """Look at the clock before this epoch is saved and validated."""
        if runner.train_loop.by_epoch:
            self._after_work(runner, epochs=1)

    def before_val(self, runner: Runner) -> None:
        """From here on the validation is measured."""
        self._val_since = clock()

    def after_val(self, runner: Runner) -> None:
        """Look at the clock before training goes on; before the first iteration, nothing is stopped."""
        now = clock()
        if self._began is None or self._val_since is None:  # registered in the middle of this validation
            return
        self._validation = max(self._validation, now - self._val_since)
        self._since, self._paused = now, runner.saving.seconds
        if self._work.count:
            self._decide(runner, now - self._began)

    def state_dict(self) -> dict[str, Any]:
        """How long the longest save and validation took: the run that goes on need not guess."""
        return {"save": self._save, "validation": self._validation}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Know it from the start."""
        self._save, self._validation = state["save"], state["validation"]

    def _after_work(self, runner: Runner, iters: int = 0, epochs: int = 0) -> None:
        """An iteration, a window of them, or an epoch is finished, and not yet counted."""
        if self._began is None:
            self.before_train(runner)
            return
        now, paused = clock(), runner.saving.seconds
        self._work.add(now - self._since - (paused - self._paused))
        self._since, self._paused = now, paused
        self._decide(runner, now - self._began, iters, epochs)

    def _decide(self, runner: Runner, elapsed: float, iters: int = 0, epochs: int = 0) -> None:
        """Stop, or save for the first time, if it is time to."""
        self._save = max(self._save, runner.saving.took)
        if not self._save and not self._asked_early and 2 * elapsed >= self.limit:
            self._asked_early = True
            runner.request_save()
        at = runner.position
        validation = self._validation or self._first_validation(runner, at.iter + iters)
        most = self._work.longest + validation + (1 + SAFETY) * self._save + self.margin
        if elapsed + most <= self.limit:
            return
        batch = 0 if epochs else at.batch + iters
        ahead = replace(at, iter=at.iter + iters, epoch=at.epoch + epochs, batch=batch)
        what, takes = self._what_comes(runner, ahead, validation)
        reserve = takes + SAFETY * self._save + (self._save if runner.saving.busy else 0.0) + self.margin
        if what and elapsed + reserve > self.limit:
            runner.stop(
                f"{as_duration(elapsed)} of {as_duration(self.limit)} have passed, and {as_duration(reserve)} are kept "
                f"for {what} and a save",
                for_now=True,
                exit_code=self.exit_code,
            )
            runner.request_save()

    def _what_comes(self, runner: Runner, ahead: Position, validation: float) -> tuple[str, float]:
        """What the run would go on with from a position, and how long that may take; nothing at its end."""
        if runner.val_loops and runner.validation_due(ahead):
            return "the validation", validation
        if runner.train_loop.is_over(ahead):
            return "", 0.0
        return "the next iteration", self._work.longest

    def _first_validation(self, runner: Runner, iters: int) -> float:
        """How long a validation may take while there was none: a batch as long as one of training, on average."""
        lengths = [loop.length for loop in runner.val_loops.values()]
        made = iters - self._first
        return sum(length or 0 for length in lengths) * self._work.total / made if made > 0 else 0.0


class Times:
    """How long pieces of work took: all together, and the longest of the recent ones.

    Recent are at least so many as the constant says, and at most twice as many, so that none has to be kept.
    """

    __slots__ = ("_before", "_now", "count", "total")

    def __init__(self) -> None:
        self._before = self._now = self.total = 0.0
        self.count = 0

    def add(self, seconds: float) -> None:
        """One more."""
        if self.count % RECENT == 0:
            self._before, self._now = self._now, 0.0
        self.count += 1
        self.total += seconds
        if seconds > self._now:
            self._now = seconds

    @property
    def longest(self) -> float:
        """The longest, in seconds; 0 where there was none."""
        return self._before if self._before > self._now else self._now

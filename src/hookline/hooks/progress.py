"""ProgressHook: the progress display."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from hookline.common.checks import check_choice, check_int, check_number
from hookline.common.memory import resident
from hookline.common.monitor import BestSoFar
from hookline.common.monitor import monitor as watch
from hookline.common.numbers import as_number, as_time
from hookline.errors import ConfigError
from hookline.record.history import KEPT, mean_of
from hookline.runner.hook import Hook
from hookline.screen.display import Bar, Picture

if TYPE_CHECKING:
    from hookline.plan.entry import Entry
    from hookline.runner.runner import Runner

MIB = 2**20
# The points of an evaluation's bar, without the name of the stage.
EVAL_POINTS = (("before", "_epoch"), ("after", "_iter"), ("after", "_epoch"))


class ProgressHook(Hook):
    """Shows a progress bar with step, speed, ETA, loss, best metric and memory.

    Validations, tests and long saves are shown below it. Without a terminal (a file, a pipe, CI), this hook does
    nothing, and the log lines show the same information.

    The loss is the mean of the last `window` steps, or, with a `smoothing_factor`, an exponential average of the last
    1,000 steps. On a GPU, the newest losses are shown after the next record has read them.

    Cost: nothing per iteration. A thread draws at most four times per second, for at most one percent of the time, and
    never waits for the device.

    Example:
        from hookline.hooks import ProgressHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[ProgressHook(window=50)], quiet=False).train()

    YAML:
        custom_hooks:
          - {type: ProgressHook, window: 50}

    Args:
        window: The number of steps over which the loss is averaged.
        smoothing_factor: The weight of the newest loss in an exponential average, which replaces the window.
        monitor: The metric whose best value is shown. By default, the metric of `save_best`, or else the first metric
            whose rule can be inferred from its name.
        rule: `greater` or `less`, whichever is better. By default, it is inferred from the metric's name.
    """

    priority = "LOWEST"
    role = "observer"
    draws_random_numbers = False

    def __init__(
        self,
        window: int = 20,
        smoothing_factor: float | None = None,
        monitor: str | None = None,
        rule: Literal["greater", "less"] | None = None,
    ) -> None:
        check_int("ProgressHook: window", window, least=1)
        if smoothing_factor is not None:
            check_number("ProgressHook: smoothing_factor", smoothing_factor, above=0)
            if smoothing_factor > 1:
                raise ConfigError(f"ProgressHook: smoothing_factor must be at most 1, not {smoothing_factor!r}")
        if rule is not None:
            check_choice("ProgressHook: rule", rule, ("greater", "less"))
        self.window = window
        self.smoothing_factor = smoothing_factor
        self.monitor = monitor
        self._best = BestSoFar(watch(monitor, rule, who="ProgressHook")) if monitor is not None else None
        self._epoch = 1
        self._entries: tuple[Entry, ...] = ()
        self._saved: dict[str, float] = {}
        self._eval_bar: Bar | None = None

    def idle_points(self, runner: Runner) -> list[str]:
        """Return the points to skip: all of them on a screen that cannot be redrawn."""
        if runner.terminal.is_live:
            return []
        bars = ("around_train", "around_test", "before_train_epoch")
        return [*bars, *(f"{when}_{stage}{what}" for when, what in EVAL_POINTS for stage in ("val", "test"))]

    def watched_metrics(self) -> list[str]:
        """Return the metric to monitor, if one is set."""
        return [self.monitor] if self.monitor is not None else []

    # -- points

    def around_train(self, runner: Runner) -> Iterator[None]:
        """Show the display during training, and remove it however training ends."""
        self._epoch, self._eval_bar = max(runner.epoch, 1), None
        self._entries = runner.plan.entries
        with runner.terminal.live(partial(self._picture, runner)):
            yield

    def around_test(self, runner: Runner) -> Iterator[None]:
        """Show the display during a test."""
        self._eval_bar = None
        with runner.terminal.live(partial(self._picture, runner)):
            yield

    def before_train_epoch(self, runner: Runner) -> None:
        """Show the number of the epoch, also while it is validated and saved. Notice hooks that were added."""
        self._epoch, self._entries = runner.epoch + 1, runner.plan.entries

    def before_val_epoch(self, runner: Runner) -> None:
        """Add a bar for the validation."""
        self._begin(runner, "val")

    def after_val_iter(self, runner: Runner) -> None:
        """Advance the bar by one batch."""
        self._advance()

    def after_val_epoch(self, runner: Runner, metrics: dict[str, Any]) -> None:
        """Remove the bar, and compare the metric with its best value."""
        self._eval_bar = None
        self._compare(runner, metrics)

    def before_test_epoch(self, runner: Runner) -> None:
        """Add a bar for the test."""
        self._begin(runner, "test")

    def after_test_iter(self, runner: Runner) -> None:
        """Advance the bar by one batch."""
        self._advance()

    def after_test_epoch(self, runner: Runner) -> None:
        """Remove the bar."""
        self._eval_bar = None

    # -- the content, which a thread reads while the run continues

    def _begin(self, runner: Runner, stage: Literal["val", "test"]) -> None:
        loops = runner.val_loops if stage == "val" else runner.test_loops
        lengths = [loop.length for loop in loops.values()]
        total = sum(length for length in lengths if length is not None) if None not in lengths else None
        self._eval_bar = Bar(stage, 0, total)

    def _advance(self) -> None:
        if self._eval_bar is not None:
            self._eval_bar.done += 1

    def _picture(self, runner: Runner) -> Picture | None:
        evaluation = self._eval_bar
        if runner.running != "test":
            return Picture(self._bar(runner), self._facts(runner), evaluation)
        return Picture(evaluation, [self._memory(runner)]) if evaluation is not None else None

    def _bar(self, runner: Runner) -> Bar:
        loop, hub = runner.train_loop, runner.hub
        label = f"epoch {min(self._epoch, loop.max_epochs or 0)}/{loop.max_epochs}" if loop.by_epoch else "iter"
        texts = []
        if times := hub.known("train/time", self.window):
            texts.append(f"{1 / max(mean_of(times), 1e-9):.1f} it/s")
        if (eta := hub.get_info("eta")) is not None:
            texts.append(f"eta {as_time(eta)}")
        return Bar(label, runner.iter, runner.max_iters, texts)

    def _facts(self, runner: Runner) -> list[str]:
        facts = []
        if (loss := self._loss(runner)) is not None:
            facts.append(f"loss {as_number(loss)}")
        if rate := runner.hub.known("train/lr", 1):
            facts.append(f"lr {as_number(rate[0])}")
        facts += [f"best {name} {as_number(value)}" for name, value in self._best_values(runner).items()]
        return [*facts, self._memory(runner)]

    def _loss(self, runner: Runner) -> float | None:
        """Return the smoothed loss, or None before the first one is known."""
        if self.smoothing_factor is None:
            losses = runner.hub.known("train/loss", self.window)
            return mean_of(losses) if losses else None
        return _exponential_mean(runner.hub.known("train/loss", KEPT), self.smoothing_factor)

    def _best_values(self, runner: Runner) -> dict[str, float]:
        """Return the best values: of `monitor`; otherwise of metrics that hooks save as best; otherwise of a guess."""
        best, saved = self._best, False
        if self.monitor is None:
            try:
                found = [checkpoint for entry in self._entries for checkpoint in entry.saved_as_best(runner)]
                saved = bool(found)
                self._saved = {
                    checkpoint.monitor.name: checkpoint.value for checkpoint in found if checkpoint.value is not None
                }
            except RuntimeError:  # a hook is just adding a metric: show what was shown before
                saved = True
        if saved:
            return self._saved
        return {best.monitor.name: best.value} if best is not None and best.value is not None else {}

    def _memory(self, runner: Runner) -> str:
        from hookline.common.devices import device_function

        texts = [f"{resident() / MIB:.0f} MiB"]
        used = device_function(runner.device, "memory_allocated")
        if used is not None:
            texts.append(f"device {used(runner.device) / MIB:.0f} MiB")
        return "  ".join(texts)

    def _compare(self, runner: Runner, metrics: dict[str, Any]) -> None:
        for name in metrics if self._best is None else ():
            try:
                self._best = BestSoFar(watch(name, who="ProgressHook"))
                break
            except ConfigError:  # no rule can be inferred from its name
                continue
        if self._best is not None and runner.running == "train" and self._best.monitor.name in metrics:
            value = metrics[self._best.monitor.name]
            if isinstance(value, (int, float)):
                self._best.take(float(value), f"iteration {runner.iter}")

    def state_dict(self) -> dict[str, Any]:
        """Return the best value that is shown."""
        return self._best.state_dict() if self._best is not None and self._best.value is not None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the best value."""
        if state and self._best is None:
            self._best = BestSoFar(watch(state["monitor"], state["rule"], who="ProgressHook"))
        if state and self._best is not None:
            self._best.load_state_dict(state, "ProgressHook")


def _exponential_mean(values: Iterable[float], factor: float) -> float | None:
    """Return the mean of some values in which each counts `1 - factor` times as much as the next one.

    >>> _exponential_mean([4.0, 1.0], 0.5), _exponential_mean([4.0, 1.0], 1.0), _exponential_mean([], 0.5)
    (2.0, 1.0, None)
    """
    total = weight = 0.0
    for value in values:
        total, weight = total * (1 - factor) + value, weight * (1 - factor) + 1
    return total / weight if weight else None

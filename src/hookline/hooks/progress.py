"""ProgressHook: the progress display."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from hookline.common.checks import check_choice, check_int, check_number
from hookline.common.memory import resident
from hookline.common.monitor import BestSoFar
from hookline.common.monitor import monitor as watch
from hookline.common.numbers import as_number, as_time
from hookline.errors import ConfigError
from hookline.plan.hook import Hook
from hookline.record.smoothing import ExponentialMean
from hookline.screen.display import Bar, Pace, Picture, clock

if TYPE_CHECKING:
    from hookline.engine.runner import Runner

MIB = 2**20
# The points of an evaluation's bar, without the name of the stage.
EVAL_POINTS = (("before", "_epoch"), ("after", "_iter"), ("after", "_epoch"))


class ProgressHook(Hook):
    """Shows a progress bar with step, speed, ETA, loss, best metric and memory.

    Validations and tests have their own bar below it. A save that takes long is shown there, too. If the screen is too
    narrow, some items are left out. Without a terminal (a file, a pipe, CI), this hook does nothing, and the log lines
    show the same information.

    The loss is smoothed. By default, it is the mean of the last `window` steps. With a `smoothing_factor`, it is an
    exponential average in which each new loss has this weight.

    Cost: one reading of the clock per iteration. It draws at most four times per second and uses at most one percent of
    the time. It only waits for the device when it draws.

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
        monitor: The metric whose best value is shown. By default, what CheckpointHook saves as best, or, without
            `save_best`, the first metric whose rule can be inferred from its name.
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
        self._mean = ExponentialMean(smoothing_factor) if smoothing_factor is not None else None
        self._seen = 0
        self._pace = Pace()
        self._draw: Callable[[Picture], None] | None = None
        self._eval_bar: Bar | None = None

    def idle_points(self, runner: Runner) -> list[str]:
        """Return the points to skip: all of them on a screen that cannot be redrawn."""
        if runner.terminal.is_live:
            return []
        bars = ("around_train", "around_test", "after_train_iter")
        return [*bars, *(f"{when}_{stage}{what}" for when, what in EVAL_POINTS for stage in ("val", "test"))]

    def watched_metrics(self) -> list[str]:
        """Return the metric to monitor, if one is set."""
        return [self.monitor] if self.monitor is not None else []

    # -- points

    def around_train(self, runner: Runner) -> Iterator[None]:
        """Show the display during training, and remove it however training ends."""
        self._seen = runner.iter
        with self._display(runner):
            self._show(runner)
            self._pace = Pace()  # the first drawing is the slowest, so it must not count
            yield

    def around_test(self, runner: Runner) -> Iterator[None]:
        """Show the display during a test."""
        with self._display(runner):
            yield

    def after_train_iter(self, runner: Runner) -> None:
        """Draw, unless the last drawing is recent."""
        if time.perf_counter() >= self._pace.next:  # without a call of its own, because every step does this
            self._show(runner, 1)

    def before_val_epoch(self, runner: Runner) -> None:
        """Add a bar for the validation."""
        self._begin(runner, "val")

    def after_val_iter(self, runner: Runner) -> None:
        """Advance the bar by one batch."""
        self._advance(runner)

    def after_val_epoch(self, runner: Runner, metrics: dict[str, Any]) -> None:
        """Remove the bar, and compare the metric with its best value."""
        self._eval_bar = None
        self._compare(runner, metrics)

    def before_test_epoch(self, runner: Runner) -> None:
        """Add a bar for the test."""
        self._begin(runner, "test")

    def after_test_iter(self, runner: Runner) -> None:
        """Advance the bar by one batch."""
        self._advance(runner)

    def after_test_epoch(self, runner: Runner) -> None:
        """Remove the bar."""
        self._eval_bar = None

    @contextmanager
    def _display(self, runner: Runner) -> Iterator[None]:
        with runner.terminal.live() as self._draw:
            try:
                yield
            finally:
                self._draw = self._eval_bar = None

    # -- drawing

    def _begin(self, runner: Runner, stage: Literal["val", "test"]) -> None:
        loops = runner.val_loops if stage == "val" else runner.test_loops
        lengths = [loop.length for loop in loops.values()]
        total = sum(length for length in lengths if length is not None) if None not in lengths else None
        self._eval_bar = Bar(stage, 0, total)

    def _advance(self, runner: Runner) -> None:
        if self._eval_bar is not None:
            self._eval_bar.done += 1
            if self._pace.is_due(clock()):
                self._show(runner)

    def _show(self, runner: Runner, under_way: int = 0) -> None:
        """Draw the current state. `under_way` is 1 if an iteration is done but not counted yet."""
        if self._draw is None:
            return
        began = clock()
        if runner.running == "test" and self._eval_bar is not None:
            self._draw(Picture(self._eval_bar, [self._memory(runner)]))
        else:
            self._draw(Picture(self._bar(runner, under_way), self._facts(runner, under_way), self._eval_bar))
        self._pace.drawn(began, clock())

    def _bar(self, runner: Runner, under_way: int) -> Bar:
        loop, hub, done = runner.train_loop, runner.hub, runner.iter + under_way
        # During a validation, its epoch has already been counted.
        epoch = runner.epoch + (self._eval_bar is None or runner.epoch == 0)
        label = f"epoch {min(epoch, loop.max_epochs or 0)}/{loop.max_epochs}" if loop.by_epoch else "iter"
        texts = []
        if "train/time" in hub.scalars:
            texts.append(f"{1 / max(hub.get_scalar('train/time').mean(self.window), 1e-9):.1f} it/s")
        if (eta := hub.get_info("eta")) is not None:
            texts.append(f"eta {as_time(eta)}")
        return Bar(label, done, runner.max_iters, texts)

    def _facts(self, runner: Runner, under_way: int) -> list[str]:
        scalars, facts = runner.hub.scalars, []
        if "train/loss" in scalars:
            facts.append(f"loss {as_number(self._smoothed(runner, under_way))}")
        if "train/lr" in scalars:
            facts.append(f"lr {as_number(scalars['train/lr'].current())}")
        facts += [f"best {name} {as_number(value)}" for name, value in self._best_values(runner).items()]
        return [*facts, self._memory(runner)]

    def _best_values(self, runner: Runner) -> dict[str, float]:
        """Return the best values to show: that of `monitor`, or else what hooks save as best, or else our own guess."""
        saved = runner.plan.saved_as_best() if self.monitor is None else []
        if saved:
            return {each.monitor.name: each.value for each in saved if each.value is not None}
        if self._best is None or self._best.value is None:
            return {}
        return {self._best.monitor.name: self._best.value}

    def _smoothed(self, runner: Runner, under_way: int) -> float:
        """Return the smoothed loss. An exponential average first takes in all losses since the last drawing."""
        history = runner.hub.get_scalar("train/loss")
        if self._mean is None:
            return history.mean(self.window)
        new, self._seen = runner.iter + under_way - self._seen, runner.iter + under_way
        for value in history.last(max(new, 0)) if new > 0 else ():
            self._mean.take(value)
        return self._mean.value if self._mean.value is not None else history.current()

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

"""ProgressHook: the progress display."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from hookline.common.checks import check_choice, check_int, check_number
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
# What surrounds the batches of an evaluation, besides its name.
WHERE = (("before", "_epoch"), ("after", "_iter"), ("after", "_epoch"))


class ProgressHook(Hook):
    """Shows a progress bar with step, rate, time left, loss, best metric and memory.

    Validations and tests have a bar of their own below it, and a save that takes long is named there. On a narrow
    screen, what does not fit is left out. Where there is no terminal (a file, a pipe, CI) it does nothing, and the
    lines of the log tell the same.

    The loss is smoothed: the mean of the last `window` steps, or, with a `smoothing_factor`, an exponential average in
    which each new one counts so much.

    Cost: one reading of the clock an iteration. It draws at most four times a second, and for at most a hundredth of
    the time; only then does it wait for the device.

    Example:
        from hookline.hooks import ProgressHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[ProgressHook(window=50)], quiet=False).train()

    YAML:
        custom_hooks:
          - {type: ProgressHook, window: 50}

    Args:
        window: Over how many steps the loss is smoothed.
        smoothing_factor: How much the newest loss counts in an exponential average, instead of a window.
        monitor: The metric whose best is shown; the first one whose name tells its rule, unless given.
        rule: Whether `greater` or `less` is better; told by the name, unless given.
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
        self._beside: Bar | None = None

    def idle_points(self, runner: Runner) -> list[str]:
        """Without a screen that redraws itself, all of them."""
        if runner.terminal.is_live:
            return []
        bars = ("around_train", "around_test", "after_train_iter")
        return [*bars, *(f"{when}_{stage}{what}" for when, what in WHERE for stage in ("val", "test"))]

    def watched_metrics(self) -> list[str]:
        """The metric that was asked for."""
        return [self.monitor] if self.monitor is not None else []

    # -- where

    def around_train(self, runner: Runner) -> Iterator[None]:
        """The display is there as long as training is, whatever ends it."""
        self._seen = runner.iter
        with self._display(runner):
            self._show(runner)
            self._pace = Pace()  # the first time takes longest, and nobody waits for it yet
            yield

    def around_test(self, runner: Runner) -> Iterator[None]:
        """Likewise for a test."""
        with self._display(runner):
            yield

    def after_train_iter(self, runner: Runner) -> None:
        """Draw, unless that was just done."""
        if self._pace.is_due(clock()):
            self._show(runner, 1)

    def before_val_epoch(self, runner: Runner) -> None:
        """A bar for the validation."""
        self._begin(runner, "val")

    def after_val_iter(self, runner: Runner) -> None:
        """One batch more of it."""
        self._advance(runner)

    def after_val_epoch(self, runner: Runner, metrics: dict[str, Any]) -> None:
        """It is over; its metric may be the best."""
        self._beside = None
        self._compare(runner, metrics)

    def before_test_epoch(self, runner: Runner) -> None:
        """A bar for the test."""
        self._begin(runner, "test")

    def after_test_iter(self, runner: Runner) -> None:
        """One batch more of it."""
        self._advance(runner)

    def after_test_epoch(self, runner: Runner) -> None:
        """It is over."""
        self._beside = None

    @contextmanager
    def _display(self, runner: Runner) -> Iterator[None]:
        with runner.terminal.live() as self._draw:
            try:
                yield
            finally:
                self._draw = self._beside = None

    # -- what

    def _begin(self, runner: Runner, stage: Literal["val", "test"]) -> None:
        loops = runner.val_loops if stage == "val" else runner.test_loops
        lengths = [loop.length for loop in loops.values()]
        total = sum(length for length in lengths if length is not None) if None not in lengths else None
        self._beside = Bar(stage, 0, total)

    def _advance(self, runner: Runner) -> None:
        if self._beside is not None:
            self._beside.done += 1
            if self._pace.is_due(clock()):
                self._show(runner)

    def _show(self, runner: Runner, under_way: int = 0) -> None:
        """Draw the run after so many finished iterations, and one that is not counted yet."""
        if self._draw is None:
            return
        began = clock()
        if runner.running == "test" and self._beside is not None:
            self._draw(Picture(self._beside, [self._memory(runner)]))
        else:
            self._draw(Picture(self._bar(runner, under_way), self._facts(runner, under_way), self._beside))
        self._pace.drawn(began, clock())

    def _bar(self, runner: Runner, under_way: int) -> Bar:
        loop, hub, done = runner.train_loop, runner.hub, runner.iter + under_way
        # A validation comes when its epoch is counted already.
        epoch = runner.epoch + (self._beside is None or runner.epoch == 0)
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
        if self._best is not None and self._best.value is not None:
            facts.append(f"best {self._best.monitor.name} {as_number(self._best.value)}")
        return [*facts, self._memory(runner)]

    def _smoothed(self, runner: Runner, under_way: int) -> float:
        """The loss; with a factor, all since the last look are taken in."""
        history = runner.hub.get_scalar("train/loss")
        if self._mean is None:
            return history.mean(self.window)
        new, self._seen = runner.iter + under_way - self._seen, runner.iter + under_way
        for value in history.last(max(new, 0)) if new > 0 else ():
            self._mean.take(value)
        return self._mean.value if self._mean.value is not None else history.current()

    def _memory(self, runner: Runner) -> str:
        import psutil

        from hookline.common.devices import device_function

        texts = [f"{psutil.Process().memory_info().rss / MIB:.0f} MiB"]
        used = device_function(runner.device, "memory_allocated")
        if used is not None:
            texts.append(f"device {used(runner.device) / MIB:.0f} MiB")
        return "  ".join(texts)

    def _compare(self, runner: Runner, metrics: dict[str, Any]) -> None:
        for name in metrics if self._best is None else ():
            try:
                self._best = BestSoFar(watch(name, who="ProgressHook"))
                break
            except ConfigError:  # its name does not tell
                continue
        if self._best is not None and runner.running == "train" and self._best.monitor.name in metrics:
            value = metrics[self._best.monitor.name]
            if isinstance(value, (int, float)):
                self._best.take(float(value), f"iteration {runner.iter}")

    def state_dict(self) -> dict[str, Any]:
        """The best that is shown."""
        return self._best.state_dict() if self._best is not None and self._best.value is not None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on showing it."""
        if state and self._best is None:
            self._best = BestSoFar(watch(state["monitor"], state["rule"], who="ProgressHook"))
        if state and self._best is not None:
            self._best.load_state_dict(state, "ProgressHook")

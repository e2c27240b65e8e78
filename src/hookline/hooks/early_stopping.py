"""EarlyStoppingHook: ends training when a metric no longer improves."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hookline.common.checks import check_int, check_number
from hookline.common.monitor import BestSoFar, Monitor, refuse_unknown
from hookline.common.monitor import monitor as watch
from hookline.errors import ConfigError
from hookline.plan.hook import Hook

if TYPE_CHECKING:
    from hookline.engine.runner import Runner

log = logging.getLogger("hookline")


class EarlyStoppingHook(Hook):
    """Stops training when a metric of validation no longer improves.

    It has not improved for `patience` validations, has passed a threshold, or is no longer finite. The reason that the
    hook gives names the metric, its best value and when that was.

    Equal is not better, so a plateau ends the run. The last checkpoint is there after a stop, and best value and
    patience go on where they were after a resume. `runner.val()` alone counts nothing.

    Cost: a comparison of two numbers a validation.

    Example:
        from hookline.hooks import EarlyStoppingHook
        from hookline.testing import toy_runner

        toy_runner(max_epochs=50, custom_hooks=[EarlyStoppingHook(monitor="accuracy", patience=3)]).train()

    YAML:
        custom_hooks:
          - {type: EarlyStoppingHook, monitor: accuracy, patience: 3}

    Args:
        monitor: The name of a metric of validation.
        rule: Whether `greater` or `less` is better; told by the name, unless given.
        min_delta: By how much more than this a value must be better to count as an improvement.
        strict: Refuse a metric that validation does not give; otherwise it is warned about once, and ignored.
        check_finite: Stop when the metric is NaN or Inf.
        patience: After how many validations in a row without an improvement to stop.
        stopping_threshold: Stop once the metric is better than this; to meet it is not enough.
    """

    priority = "LOWEST"

    def __init__(
        self,
        monitor: str,
        rule: str | None = None,
        min_delta: float = 0.0,
        strict: bool = False,
        check_finite: bool = True,
        patience: int = 5,
        stopping_threshold: float | None = None,
    ) -> None:
        if not isinstance(monitor, str) or not monitor:
            raise ConfigError(f"EarlyStoppingHook: monitor is the name of a metric, not {monitor!r}")
        check_number("EarlyStoppingHook: min_delta", min_delta, least=0)
        check_int("EarlyStoppingHook: patience", patience, least=1)
        if stopping_threshold is not None:
            check_number("EarlyStoppingHook: stopping_threshold", stopping_threshold)
        self.monitor = monitor
        self.best = BestSoFar(Monitor(monitor, "greater"))
        #: What to say if validation has this metric, and its name does not tell the rule.
        self._undecided: ConfigError | None = None
        try:
            self.best = BestSoFar(watch(monitor, rule, who="EarlyStoppingHook"))
        except ConfigError as error:
            if rule is not None:
                raise
            self._undecided = error
        self.min_delta = min_delta
        self.strict = strict
        self.check_finite = check_finite
        self.patience = patience
        self.stopping_threshold = stopping_threshold
        #: How many validations there were since the best.
        self.waited = 0
        self._warned = False

    def watched_metrics(self) -> tuple[str, ...]:
        """The metric, when it has to be there; a name that tells no rule may just be misspelt."""
        return (self.monitor,) if self.strict or self._undecided is not None else ()

    def know_metrics(self, metrics: Mapping[str, Any]) -> None:
        """It is there, so it is the rule that is missing."""
        if self._undecided is not None:
            raise self._undecided

    def before_train(self, runner: Runner) -> None:
        """Without any validation, the metric is never there."""
        if self._undecided is not None:  # validation could not be tried
            raise self._undecided
        if not runner.val_loops:
            self._refuse_or_warn({})

    def after_val_epoch(self, runner: Runner, metrics: dict[str, Any]) -> None:
        """Compare, and stop where there is a reason to."""
        if runner.running != "train":
            return
        if self.best.monitor.name not in metrics:
            self._refuse_or_warn(metrics)
            return
        value = self.best.monitor.value(metrics, "EarlyStoppingHook")
        self.waited = 0 if self.best.take(value, _place(runner), self.min_delta) else self.waited + 1
        if reason := self._reason(value):
            runner.stop(reason)

    def _reason(self, value: float) -> str:
        """Why to stop; empty when there is no reason."""
        name, threshold, best = self.best.monitor.name, self.stopping_threshold, str(self.best)
        if self.check_finite and not math.isfinite(value):
            return f"{name} has become {value}; {best}"
        if threshold is not None and self.best.monitor.better(value, threshold):
            return f"{name} has passed {threshold:.6g}; {best}"
        if self.waited >= self.patience:
            return f"{name} has not improved for {self.waited} validation{'s' * (self.waited > 1)}; {best}"
        return ""

    def _refuse_or_warn(self, metrics: dict[str, Any]) -> None:
        try:
            refuse_unknown(self.best.monitor.name, metrics, "EarlyStoppingHook")
        except ConfigError as error:
            if self.strict:
                raise
            if not self._warned:
                log.warning("%s (so it stops nothing)", error)
            self._warned = True

    def state_dict(self) -> dict[str, Any]:
        """The best value, when it came, and how many validations there were since."""
        return {**self.best.state_dict(), "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        if self.best.load_state_dict(state, "EarlyStoppingHook"):
            self.waited = state["waited"]


def _place(runner: Runner) -> str:
    """Where training stands; in the middle of an epoch, only the iteration says so."""
    by_epoch = runner.train_loop.by_epoch and runner.position.batch == 0
    return f"epoch {runner.epoch}" if by_epoch else f"iteration {runner.iter}"

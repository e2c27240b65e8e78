"""EarlyStoppingHook: stops training when a metric no longer improves."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hookline.common.checks import check_int, check_number
from hookline.common.monitor import BestSoFar, Monitor, refuse_unknown
from hookline.common.monitor import monitor as watch
from hookline.errors import ConfigError
from hookline.plan.entry import is_custom
from hookline.plan.milestones import Milestone
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from hookline.runner.runner import Runner

log = logging.getLogger("hookline")


class EarlyStoppingHook(Hook):
    """Stops training when a validation metric no longer improves.

    Training stops when the metric has not improved for `patience` validations, has passed a threshold, or is NaN or
    Inf. An equal value is not an improvement, so a plateau stops training. The last checkpoint is saved after a stop. A
    resumed run continues with the best value and the patience of the checkpoint. `runner.val()` alone counts nothing.

    Cost: one comparison of two numbers per validation.

    Example:
        from hookline.hooks import EarlyStoppingHook
        from hookline.testing import toy_runner

        toy_runner(max_epochs=50, custom_hooks=[EarlyStoppingHook(monitor="accuracy", patience=3)]).train()

    YAML:
        custom_hooks:
          - {type: EarlyStoppingHook, monitor: accuracy, patience: 3}

    Args:
        monitor: The name of a validation metric.
        rule: `greater` or `less`, whichever is better. By default, it is inferred from the metric's name.
        min_delta: A value must be better by more than this to count as an improvement.
        strict: Raise an error if a later validation does not return the metric. Otherwise, warn once and ignore it.
        check_finite: Stop when the metric is NaN or Inf.
        patience: Stop after this many validations in a row without an improvement.
        stopping_threshold: Stop once the metric is better than this. An equal value is not enough.
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
            raise ConfigError(f"EarlyStoppingHook: monitor must be the name of a metric, not {monitor!r}")
        check_number("EarlyStoppingHook: min_delta", min_delta, least=0)
        check_int("EarlyStoppingHook: patience", patience, least=1)
        if stopping_threshold is not None:
            check_number("EarlyStoppingHook: stopping_threshold", stopping_threshold)
        self.monitor = monitor
        self.best = BestSoFar(Monitor(monitor, "greater"))
        #: The error to raise if validation returns this metric, but its rule cannot be inferred from its name.
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
        #: The number of validations since the best value.
        self.waited = 0
        self._warned = False

    def watched_metrics(self) -> tuple[str, ...]:
        """Return the metric, unless one of the user's hooks may add it to the results of validation."""
        must_exist = self.strict or self._undecided is not None or self._host is None
        return (self.monitor,) if must_exist or not _may_be_added(self.runner) else ()

    def must_reach(self, runner: Runner) -> list[Milestone]:
        """Return the validation at which the patience can end first. A threshold may be passed at any time."""
        if self.stopping_threshold is not None:
            return []
        effect = "it never stops a run that does not improve"
        return [Milestone("patience", self.patience, self.patience + 1, "validation", effect)]

    def know_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Refuse a metric without a rule. It exists, so its name is not misspelled."""
        if self._undecided is not None:
            raise self._undecided

    def before_train(self, runner: Runner) -> None:
        """Refuse a metric without a rule."""
        if self._undecided is not None:  # no trial batch was possible, so `know_metrics` was not called
            raise self._undecided

    def after_val_epoch(self, runner: Runner, metrics: dict[str, Any]) -> None:
        """Compare the metric with its best value, and stop training if there is a reason to."""
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
        """Return the reason to stop, or an empty string."""
        name, threshold, best = self.best.monitor.name, self.stopping_threshold, str(self.best)
        if self.check_finite and not math.isfinite(value):
            return f"{name} became {value}; {best}"
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
                log.warning("%s (early stopping has no effect)", error)
            self._warned = True

    def state_dict(self) -> dict[str, Any]:
        """Return the best value, where it was reached, and the number of validations since then."""
        return {**self.best.state_dict(), "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        if self.best.load_state_dict(state, "EarlyStoppingHook"):
            self.waited = state["waited"]


def _may_be_added(runner: Runner) -> bool:
    """Return whether a hook of the user takes the metrics of a validation, so that it may add some."""
    return runner.may_validate and any(
        call.point.name == "after_val_epoch" and "metrics=" in call.passed
        for entry in runner.plan
        if is_custom(entry.hook) and getattr(entry.hook, "role", "actor") != "observer"
        for call in entry.calls
    )


def _place(runner: Runner) -> str:
    """Return the current place in training: the epoch, or the iteration in the middle of an epoch."""
    by_epoch = runner.train_loop.by_epoch and runner.position.batch == 0
    return f"epoch {runner.epoch}" if by_epoch else f"iteration {runner.iter}"

"""EarlyStoppingHook with MMEngine's defaults."""

from __future__ import annotations

import math
from typing import Any

from hookline.common.forwarding import forwarded
from hookline.dialects.mmengine.hooks.hook import DATA_BATCH as DATA_BATCH
from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.rules import original_rule
from hookline.dialects.mmengine.hooks.signatures import with_original_signatures
from hookline.hooks import early_stopping


@with_original_signatures
class EarlyStoppingHook(early_stopping.EarlyStoppingHook, Hook):  # type: ignore[misc]  # native methods take only the arguments they need
    """Stops training when a validation metric no longer improves.

    For parameters that are not listed here, see hookline's EarlyStoppingHook.

    Args:
        rule: `greater` or `less`, whichever is better. By default, it is inferred from the metric's name, first as
            MMEngine does.
        strict: Raise an error if validation does not report the metric.
    """

    never_called = ("_check_stop_condition", "_init_rule")
    priority = "LOWEST"

    def __init__(
        self,
        monitor: str,
        rule: str | None = None,
        min_delta: float = 0.1,
        strict: bool = False,
        check_finite: bool = True,
        patience: int = 5,
        stopping_threshold: float | None = None,
    ) -> None:
        if rule is None:
            rule = original_rule(monitor, "EarlyStoppingHook")
        super().__init__(monitor, rule, min_delta, strict, check_finite, patience, stopping_threshold)

    rule: str = forwarded("best.monitor.rule", "Return whether a `greater` or a `less` value is better.")

    @property
    def best_score(self) -> float:
        """Return the best value so far; the worst one before the first validation."""
        if self.best.value is not None:
            return self.best.value
        return -math.inf if self.rule == "greater" else math.inf

    wait_count: int = forwarded("waited", "Return the number of validations since the best value.")

    def watched_metrics(self) -> tuple[str, ...]:
        """Return the metric if it must exist, or if no rule can be inferred from it, because it may be misspelled."""
        return (self.monitor,) if self.strict or self._undecided is not None else ()

    def before_train(self, runner: Any) -> None:
        """Refuse a metric without a rule. Refuse or warn if the run has no validation."""
        super().before_train(runner)
        if not runner.val_loops:
            self._refuse_or_warn({})

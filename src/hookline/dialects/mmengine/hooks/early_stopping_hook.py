"""EarlyStoppingHook with MMEngine's defaults."""

from __future__ import annotations

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.rules import original_rule
from hookline.dialects.mmengine.hooks.signatures import with_original_signatures
from hookline.hooks import early_stopping


@with_original_signatures
class EarlyStoppingHook(early_stopping.EarlyStoppingHook, Hook):  # type: ignore[misc]  # native methods take only the arguments they need
    """Stops training when a validation metric no longer improves.

    An equal value is not an improvement, so a plateau stops training.

    Args:
        monitor: The name of a validation metric.
        rule: `greater` or `less`, whichever is better. By default, it is inferred from the metric's name, first as
            MMEngine does.
        min_delta: A value must be better by more than this to count as an improvement.
        strict: Raise an error if validation does not report the metric.
        check_finite: Stop when the metric is NaN or Inf.
        patience: Stop after this many validations in a row without an improvement.
        stopping_threshold: Stop once the metric is better than this.
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

"""EarlyStoppingHook with MMEngine's defaults."""

from __future__ import annotations

from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import as_in_the_original
from hookline.hooks import early_stopping


@as_in_the_original
class EarlyStoppingHook(early_stopping.EarlyStoppingHook, Hook):  # type: ignore[misc]  # natively, methods take only what they need
    """Stops training when a metric of validation no longer improves; equal is not better, so a plateau stops.

    Args:
        monitor: The name of a metric of validation.
        rule: Whether `greater` or `less` is better; told by the name, unless given.
        min_delta: By how much more than this a value must be better to count as an improvement.
        strict: Refuse a metric that validation does not give.
        check_finite: Stop when the metric is NaN or Inf.
        patience: After how many validations in a row without an improvement to stop.
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
        super().__init__(monitor, rule, min_delta, strict, check_finite, patience, stopping_threshold)

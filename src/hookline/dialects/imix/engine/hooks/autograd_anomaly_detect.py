"""AutogradAnomalyDetectHook: the native hook under iMIX's name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hookline.dialects.imix.engine.hooks.base_hook import HookBase
from hookline.hooks.autograd_anomaly import AutogradAnomalyHook


class AutogradAnomalyDetectHook(AutogradAnomalyHook, HookBase):
    """Names the line of the forward pass if the backward pass fails or produces a NaN.

    Args:
        mode: Whether detection is on.
        begin: The number of finished iterations after which detection starts.
        end: The number of finished iterations after which detection stops; None means the end of training.
        check_nan: Also fail if a gradient is NaN.
    """

    trainer = HookBase.trainer  # the engine, not its runner

    def __init__(self, mode: bool = True, begin: int = 0, end: int | None = None, check_nan: bool = True) -> None:
        super().__init__(begin, end, check_nan)
        self.mode = mode

    def idle_points(self, runner: Any) -> list[str]:
        """Return the points to skip: all of them if detection is off."""
        native = ["before_train", "around_train", "around_train_iter"]
        others: Iterable[str] = HookBase.idle_points(self, runner)
        return [*others, *(super().idle_points(runner) if self.mode else native)]

"""AutogradAnomalyDetectHook: the native hook under iMIX's name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hookline.dialects.imix.engine.hooks.base_hook import HookBase
from hookline.hooks.autograd_anomaly import AutogradAnomalyHook


class AutogradAnomalyDetectHook(AutogradAnomalyHook, HookBase):  # type: ignore[misc]  # its points take the runner
    """Names the line of the forward pass when a backward pass fails or gives a NaN.

    Args:
        mode: Whether it looks at all.
        begin: From how many finished iterations on.
        end: Until how many iterations are finished; None is until the end.
        check_nan: Also fail when a gradient is NaN.
    """

    trainer = HookBase.trainer  # the engine, and not its runner

    def __init__(self, mode: bool = True, begin: int = 0, end: int | None = None, check_nan: bool = True) -> None:
        super().__init__(begin, end, check_nan)
        self.mode = mode

    def idle_points(self, runner: Any) -> list[str]:
        """Everywhere, when it does not look."""
        native = ["before_train", "around_train", "around_train_iter"]
        others: Iterable[str] = HookBase.idle_points(self, runner)
        return [*others, *(super().idle_points(runner) if self.mode else native)]

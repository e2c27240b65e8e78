"""The built-in hooks, one file each. `from hookline.hooks import CheckpointHook`; `hookline hooks` lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline.registry import HOOKS

if TYPE_CHECKING:
    from hookline.hooks.autograd_anomaly import AutogradAnomalyHook
    from hookline.hooks.check_invalid_loss import CheckInvalidLossHook
    from hookline.hooks.checkpoint import CheckpointHook
    from hookline.hooks.early_stopping import EarlyStoppingHook
    from hookline.hooks.ema import EMAHook
    from hookline.hooks.empty_cache import EmptyCacheHook
    from hookline.hooks.evaluate import EvaluateHook
    from hookline.hooks.freeze import FreezeHook
    from hookline.hooks.grad_clip import GradClipHook
    from hookline.hooks.grad_norm import GradNormHook
    from hookline.hooks.logger import LoggerHook
    from hookline.hooks.param_scheduler import ParamSchedulerHook
    from hookline.hooks.profiler import ProfilerHook
    from hookline.hooks.progress import ProgressHook
    from hookline.hooks.runtime_info import RuntimeInfoHook
    from hookline.hooks.sampler_seed import DistSamplerSeedHook
    from hookline.hooks.stats_monitor import StatsMonitorHook
    from hookline.hooks.sync_buffers import SyncBuffersHook
    from hookline.hooks.time_limit import TimeLimitHook
    from hookline.hooks.timer import IterTimerHook
    from hookline.hooks.visualization import VisualizationHook

__all__ = [
    "AutogradAnomalyHook",
    "CheckInvalidLossHook",
    "CheckpointHook",
    "DistSamplerSeedHook",
    "EMAHook",
    "EarlyStoppingHook",
    "EmptyCacheHook",
    "EvaluateHook",
    "FreezeHook",
    "GradClipHook",
    "GradNormHook",
    "IterTimerHook",
    "LoggerHook",
    "ParamSchedulerHook",
    "ProfilerHook",
    "ProgressHook",
    "RuntimeInfoHook",
    "StatsMonitorHook",
    "SyncBuffersHook",
    "TimeLimitHook",
    "VisualizationHook",
]


def __getattr__(name: str) -> Any:
    """Import a hook when it is first asked for."""
    if name in __all__:
        return HOOKS.get(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""HOOKS, the registry of hooks, and building hooks from dicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hookline.dialects.registry import Registry

_HERE = "hookline.dialects.imix.engine.hooks"

HOOKS = Registry(
    "hook",
    builtin={
        name: f"{_HERE}:{name}"
        for name in (
            *("AutogradAnomalyDetectHook", "AutogradProfilerHook", "CheckPointHook", "CommonMetricLoggerHook"),
            *("EMAEpochHook", "EMAIterHook", "EvaluateHook", "Fp16OptimizerHook", "IterationTimerHook"),
            *("JSONLoggerHook", "LRSchedulerHook", "OptimizerHook", "PeriodicLogger", "TensorboardLoggerHook"),
            "TextLoggerHook",
        )
    },
)


def build_hook(cfg: Any, **more: Any) -> Any:
    """Build a hook from `dict(type=..., level=..., ...)`. The `level` overrides the class's level."""
    if not isinstance(cfg, Mapping):
        return HOOKS.build(cfg, **more)
    level = cfg.get("level")
    hook = HOOKS.build({name: value for name, value in cfg.items() if name != "level"}, **more)
    if level is not None:
        hook.level = level
    return hook

"""The built-in hooks, one module per hook."""

from hookline.dialects.imix.engine.hooks.autograd_anomaly_detect import AutogradAnomalyDetectHook
from hookline.dialects.imix.engine.hooks.autograd_profiler import AutogradProfilerHook
from hookline.dialects.imix.engine.hooks.base_hook import HookBase, PriorityStatus
from hookline.dialects.imix.engine.hooks.builder import HOOKS, build_hook
from hookline.dialects.imix.engine.hooks.ema import EMAEpochHook, EMAIterHook
from hookline.dialects.imix.engine.hooks.evaluate import EvaluateHook
from hookline.dialects.imix.engine.hooks.iteration_time import IterationTimerHook
from hookline.dialects.imix.engine.hooks.lr_scheduler import LRSchedulerHook
from hookline.dialects.imix.engine.hooks.optimizer import Fp16OptimizerHook, OptimizerHook
from hookline.dialects.imix.engine.hooks.periodic_logger import PeriodicLogger
from hookline.dialects.imix.engine.hooks.periods import (
    CheckPointHook,
    CommonMetricLoggerHook,
    JSONLoggerHook,
    LogBufferStorage,
    LogBufferWriter,
    TensorboardLoggerHook,
    get_log_buffer,
)
from hookline.dialects.imix.engine.hooks.text_logger_hook import TextLoggerHook

__all__ = [
    "HOOKS",
    "AutogradAnomalyDetectHook",
    "AutogradProfilerHook",
    "CheckPointHook",
    "CommonMetricLoggerHook",
    "EMAEpochHook",
    "EMAIterHook",
    "EvaluateHook",
    "Fp16OptimizerHook",
    "HookBase",
    "IterationTimerHook",
    "JSONLoggerHook",
    "LRSchedulerHook",
    "LogBufferStorage",
    "LogBufferWriter",
    "OptimizerHook",
    "PeriodicLogger",
    "PriorityStatus",
    "TensorboardLoggerHook",
    "TextLoggerHook",
    "build_hook",
    "get_log_buffer",
]

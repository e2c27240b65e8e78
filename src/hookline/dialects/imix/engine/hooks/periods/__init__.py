"""Periodic hooks: checkpoints, the loggers, and the log buffer that the loggers read."""

from hookline.dialects.imix.engine.hooks.periods.checkpoint import CheckPointHook
from hookline.dialects.imix.engine.hooks.periods.common_metric import CommonMetricLoggerHook
from hookline.dialects.imix.engine.hooks.periods.json_logger import JSONLoggerHook
from hookline.dialects.imix.engine.hooks.periods.log_buffer_imix import (
    LogBufferStorage,
    LogBufferWriter,
    get_log_buffer,
    write_metrics,
)
from hookline.dialects.imix.engine.hooks.periods.tensorboard_logger import TensorboardLoggerHook

__all__ = [
    "CheckPointHook",
    "CommonMetricLoggerHook",
    "JSONLoggerHook",
    "LogBufferStorage",
    "LogBufferWriter",
    "TensorboardLoggerHook",
    "get_log_buffer",
    "write_metrics",
]

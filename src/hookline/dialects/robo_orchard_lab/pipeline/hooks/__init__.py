"""`robo_orchard_lab.pipeline.hooks`: the hooks and their configs."""

from hookline.dialects.robo_orchard_lab.pipeline.hooks.checkpoint import (
    SaveCheckpoint,
    SaveCheckpointConfig,
    SaveModel,
    SaveModelConfig,
)
from hookline.dialects.robo_orchard_lab.pipeline.hooks.grad_clip import GradientClippingHook, GradientClippingHookConfig
from hookline.dialects.robo_orchard_lab.pipeline.hooks.loss_tracker import (
    LossMovingAverageTracker,
    LossMovingAverageTrackerConfig,
    LossTracker,
    LossTrackerConfig,
)
from hookline.dialects.robo_orchard_lab.pipeline.hooks.memory import ClearCacheHook, ClearCacheHookConfig
from hookline.dialects.robo_orchard_lab.pipeline.hooks.metric import MetricEntry, MetricTracker, MetricTrackerConfig
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import (
    HookContext,
    HookContextChannel,
    HookContextFromCallable,
    ModelOutput,
    ModelOutputHasLossKeys,
    PipelineHookArgs,
    PipelineHookChanelType,
    PipelineHooks,
    PipelineHooksConfig,
)
from hookline.dialects.robo_orchard_lab.pipeline.hooks.optimizer import OptimizerHook, OptimizerHookConfig
from hookline.dialects.robo_orchard_lab.pipeline.hooks.stats import StatsMonitor, StatsMonitorConfig
from hookline.dialects.robo_orchard_lab.pipeline.hooks.validation import ValidationHook, ValidationHookConfig

__all__ = [
    "ClearCacheHook",
    "ClearCacheHookConfig",
    "GradientClippingHook",
    "GradientClippingHookConfig",
    "HookContext",
    "HookContextChannel",
    "HookContextFromCallable",
    "LossMovingAverageTracker",
    "LossMovingAverageTrackerConfig",
    "LossTracker",
    "LossTrackerConfig",
    "MetricEntry",
    "MetricTracker",
    "MetricTrackerConfig",
    "ModelOutput",
    "ModelOutputHasLossKeys",
    "OptimizerHook",
    "OptimizerHookConfig",
    "PipelineHookArgs",
    "PipelineHookChanelType",
    "PipelineHooks",
    "PipelineHooksConfig",
    "SaveCheckpoint",
    "SaveCheckpointConfig",
    "SaveModel",
    "SaveModelConfig",
    "StatsMonitor",
    "StatsMonitorConfig",
    "ValidationHook",
    "ValidationHookConfig",
]

"""`robo_orchard_lab.pipeline`: the trainers."""

from hookline.dialects.robo_orchard_lab.pipeline.hook_based_trainer import (
    GradientClippingHookConfig,
    HookBasedTrainer,
    PipelineHookOrConfigType,
    ResumeCheckpointConfig,
    ValidationHookConfig,
)
from hookline.dialects.robo_orchard_lab.pipeline.trainer import SimpleTrainer

__all__ = [
    "GradientClippingHookConfig",
    "HookBasedTrainer",
    "PipelineHookOrConfigType",
    "ResumeCheckpointConfig",
    "SimpleTrainer",
    "ValidationHookConfig",
]

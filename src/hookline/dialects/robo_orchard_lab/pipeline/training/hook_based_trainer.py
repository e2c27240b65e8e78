"""HookBasedTrainer, in the module that has it in later versions of RoboOrchard."""

from hookline.dialects.robo_orchard_lab.pipeline.hook_based_trainer import (
    GradientClippingHookConfig,
    HookBasedTrainer,
    PipelineHookOrConfigType,
    ResumeCheckpointConfig,
    TrainerProgressState,
    ValidationHookConfig,
)

__all__ = [
    "GradientClippingHookConfig",
    "HookBasedTrainer",
    "PipelineHookOrConfigType",
    "ResumeCheckpointConfig",
    "TrainerProgressState",
    "ValidationHookConfig",
]

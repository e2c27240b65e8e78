"""`robo_orchard_lab.pipeline.training`: the module of the trainers in later versions of RoboOrchard."""

from hookline.dialects.robo_orchard_lab.pipeline.training.hook_based_trainer import (
    HookBasedTrainer,
    ResumeCheckpointConfig,
)
from hookline.dialects.robo_orchard_lab.pipeline.training.trainer import SimpleTrainer

__all__ = ["HookBasedTrainer", "ResumeCheckpointConfig", "SimpleTrainer"]

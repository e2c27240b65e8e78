"""`robo_orchard_lab.pipeline.training`: where later versions of the original have the trainers."""

from hookline.dialects.robo_orchard_lab.pipeline.hook_based_trainer import HookBasedTrainer, ResumeCheckpointConfig
from hookline.dialects.robo_orchard_lab.pipeline.trainer import SimpleTrainer

__all__ = ["HookBasedTrainer", "ResumeCheckpointConfig", "SimpleTrainer"]

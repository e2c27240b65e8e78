"""SimpleTrainer, in the module that has it in later versions of RoboOrchard."""

from hookline.dialects.robo_orchard_lab.pipeline.trainer import SimpleTrainer

__all__ = ["SimpleTrainer"]

"""The trainer: its loop, its parts and its checkpoints."""

from hookline.dialects.pointrix.engine.base_trainer import BaseTrainer
from hookline.dialects.pointrix.engine.default_trainer import DefaultTrainer

__all__ = ["BaseTrainer", "DefaultTrainer"]

"""The trainer: its loop, what surrounds a run of it, its checkpoints."""

from hookline.dialects.pointrix.engine.base_trainer import BaseTrainer
from hookline.dialects.pointrix.engine.default_trainer import DefaultTrainer

__all__ = ["BaseTrainer", "DefaultTrainer"]

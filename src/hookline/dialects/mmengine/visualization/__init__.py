"""Visualizer and its backends, which pass records to the writers of a run."""

from hookline.dialects.mmengine.visualization.vis_backend import (
    BaseVisBackend,
    LocalVisBackend,
    MLflowVisBackend,
    TensorboardVisBackend,
    WandbVisBackend,
)
from hookline.dialects.mmengine.visualization.visualizer import Visualizer

__all__ = [
    "BaseVisBackend",
    "LocalVisBackend",
    "MLflowVisBackend",
    "TensorboardVisBackend",
    "Visualizer",
    "WandbVisBackend",
]

"""Building optimizers and learning-rate policies by name."""

from hookline.dialects.imix.solver.builder import build_lr_scheduler, build_optimizer

__all__ = ["build_lr_scheduler", "build_optimizer"]

"""Ready-made training and evaluation steps."""

from hookline.engine.steps import call_model, cross_entropy, predict

__all__ = ["call_model", "cross_entropy", "predict"]

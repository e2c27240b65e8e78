"""Metrics that a run can use as they are, and the collection that EvalLoop makes of them."""

from hookline.engine.metrics import Metrics, accuracy

__all__ = ["Metrics", "accuracy"]

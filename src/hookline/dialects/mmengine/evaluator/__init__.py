"""Metrics computed over all samples of an evaluation."""

from hookline.dialects.mmengine.evaluator.evaluator import Evaluator
from hookline.dialects.mmengine.evaluator.metric import BaseMetric, DumpResults
from hookline.dialects.mmengine.evaluator.utils import get_metric_value

__all__ = ["BaseMetric", "DumpResults", "Evaluator", "get_metric_value"]

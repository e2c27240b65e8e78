"""BaseMetric: the base class of metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from hookline.dialects.imix.evaluation.evaluator_imix import METRICS

__all__ = ["METRICS", "BaseMetric"]


class BaseMetric(ABC):
    """A metric with a name. A subclass defines `calculate`."""

    metric_name = "base_metric"

    def evaluate(self, model_outputs: Any, labels: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the metric of all predictions."""
        return self.calculate(model_outputs, labels)

    @abstractmethod
    def calculate(self, predictions: Any, labels: Any, **kwargs: Any) -> Any:
        """Return the metric."""

    def __str__(self) -> str:
        return self.metric_name

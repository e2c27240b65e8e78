"""Evaluator: it collects the predictions and labels of all batches, and gives them to the metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from hookline.common.modes import in_mode
from hookline.dialects.imix.utils.config import read
from hookline.dialects.imix.utils.registry import Registry, build_from_cfg
from hookline.errors import ConfigError

__all__ = [
    "DATASET_CONVERTER",
    "METRICS",
    "POST_PROCESSOR",
    "Evaluator",
    "build_post_processor",
    "inference_on_dataset",
]

METRICS = Registry("metric")
DATASET_CONVERTER = Registry("data set converter")
POST_PROCESSOR = Registry(
    "post-processor", builtin={"Evaluator": "hookline.dialects.imix.evaluation.evaluator_imix:Evaluator"}
)


class Evaluator:
    """Measures a model with metrics.

    Args:
        metrics: Objects with `evaluate(predictions, labels)`, or dicts that name them in METRICS. The name of a result
            is `str(metric)`.
        dataset_converters: Objects whose `convert(batch_data, model_outputs)` returns the predictions and labels of a
            batch, as lists or tensors; or dicts that name them in DATASET_CONVERTER.
    """

    def __init__(self, metrics: Any, dataset_converters: Any) -> None:
        self._metrics = [_built(each, METRICS) for each in _listed(metrics)]
        more = {"post_process_type": str(self)}
        self._converters = [_built(each, DATASET_CONVERTER, more) for each in _listed(dataset_converters)]
        self.reset()

    def reset(self) -> None:
        """Forget all predictions and labels."""
        self._predictions: list[Any] = []
        self._labels: list[Any] = []

    def convert(self, batch_data: Any, model_outputs: Any) -> None:
        """Add the predictions and labels of a batch."""
        for converter in self._converters:
            predictions, labels = converter.convert(batch_data, model_outputs)
            self._predictions.extend(predictions)
            if labels is not None:
                self._labels.extend(labels)

    def process(self) -> dict[str, Any]:
        """Return the result of each metric by its name."""
        if not self._predictions:
            raise ConfigError("Evaluator: the test data has no batch, so there is nothing to evaluate")
        predictions, labels = _stacked(self._predictions), _stacked(self._labels)
        return {str(metric): metric.evaluate(predictions, labels) for metric in self._metrics}

    def __str__(self) -> str:
        return "evaluator"


def build_post_processor(cfg: Any) -> Any:
    """Build the post-processor of a config: `dict(type="Evaluator", metrics=[...], dataset_converters=[...])`."""
    return _built(cfg, POST_PROCESSOR)


def inference_on_dataset(cfg: Any, model: nn.Module, data_loader: Iterable[Any]) -> dict[str, Any]:
    """Run a model on all batches in evaluation mode, without gradients, and return the results of `post_processor`."""
    processor = build_post_processor(read(cfg, "post_processor"))
    processor.reset()
    with in_mode(model, training=False), torch.no_grad():
        for batch in data_loader:
            processor.convert(batch_data=batch, model_outputs=model(batch))
    return processor.process() or {}


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _built(given: Any, registry: Registry, more: Any = None) -> Any:
    return build_from_cfg(given, registry, more) if isinstance(given, dict) else given


def _stacked(values: list[Any]) -> Any:
    """Return tensors as one, with a row for each; other values as they are."""
    if values and all(isinstance(each, Tensor) for each in values):
        return torch.stack([each.reshape(-1) for each in values])
    return values

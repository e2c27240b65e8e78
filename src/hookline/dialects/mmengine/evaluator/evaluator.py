"""Evaluator, which combines several metrics, and the adapter that hookline's loops use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from hookline.dialects.mmengine.dist import all_gather_object
from hookline.dialects.mmengine.errors import ConfigValueError
from hookline.dialects.mmengine.evaluator.metric import check_metric
from hookline.dialects.mmengine.registry import METRICS
from hookline.engine.metrics import Average, Metrics, as_number, has_memory, plain
from hookline.errors import blame

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Evaluator:
    """Passes every batch to all metrics and merges their results.

    Args:
        metrics: One metric or several, as objects or as dicts with a `type`.
    """

    def __init__(self, metrics: Any) -> None:
        self._dataset_meta: dict[str, Any] | None = None
        several = isinstance(metrics, Sequence) and not isinstance(metrics, (str, Mapping))
        self.metrics = [
            METRICS.build(each) if isinstance(each, Mapping) else each for each in (metrics if several else [metrics])
        ]
        for metric in self.metrics:
            check_metric(metric)

    @property
    def dataset_meta(self) -> dict[str, Any] | None:
        """Return the metadata of the dataset."""
        return self._dataset_meta

    @dataset_meta.setter
    def dataset_meta(self, dataset_meta: dict[str, Any]) -> None:
        self._dataset_meta = dataset_meta
        for metric in self.metrics:
            metric.dataset_meta = dataset_meta

    def process(self, data_samples: Any, data_batch: Any = None) -> None:
        """Pass the predictions for a batch to all metrics. Samples with a `to_dict` method are converted to dicts."""
        if isinstance(data_samples, Sequence):
            data_samples = [each.to_dict() if hasattr(each, "to_dict") else each for each in data_samples]
        for metric in self.metrics:
            try:
                metric.process(data_batch, data_samples)
            except Exception as error:
                blame(error, f"in the metric {type(metric).__name__}, called with the predictions for a batch")
                raise

    def evaluate(self, size: int) -> dict[str, Any]:
        """Return the results of all metrics over a dataset of this size, and refuse duplicate names."""
        merged: dict[str, Any] = {}
        for metric in self.metrics:
            try:
                results = metric.evaluate(size)
            except Exception as error:
                blame(error, f"in the metric {type(metric).__name__}, computed over {size} samples")
                raise
            for name, value in results.items():
                if name in merged:
                    raise ConfigValueError(
                        f"two metrics are named '{name}'; set a different prefix for {type(metric).__name__}"
                    )
                merged[name] = value
        return merged

    def offline_evaluate(
        self, data_samples: Iterable[Any], data: Iterable[Any] | None = None, chunk_size: int = 1
    ) -> dict[str, Any]:
        """Compute the metrics of existing predictions, `chunk_size` at a time. The data must be as long as they are."""
        size = 0
        batches = _chunks(data, chunk_size) if data is not None else None
        for chunk in _chunks(data_samples, chunk_size):
            batch = next(batches, []) if batches is not None else None
            size += len(chunk)
            if batch is not None and len(batch) != len(chunk):
                raise ConfigValueError(
                    f"offline_evaluate: data ends at {size - len(chunk) + len(batch)}, before data_samples"
                )
            self.process(chunk, batch)
        if batches is not None and next(batches, None):
            raise ConfigValueError(f"offline_evaluate: there are only {size} data_samples, and more data")
        return self.evaluate(size)


def _chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


class EvaluatorMetrics(Metrics):
    """Adapts an Evaluator to the metrics interface of hookline's evaluation loops."""

    def __init__(self, evaluator: Evaluator, dataset: Any = None) -> None:
        super().__init__(None)
        self._evaluator = evaluator
        self._dataset = dataset

    def memories(self) -> dict[str, Any]:
        """Return the metrics whose state outlives an evaluation, each with its number."""
        metrics = enumerate(self._evaluator.metrics)
        return {f"{number}/{type(each).__name__}": each for number, each in metrics if has_memory(each)}

    def reset(self, device: torch.device) -> None:
        """Discard the results of all metrics."""
        for metric in self._evaluator.metrics:
            getattr(metric, "results", []).clear()

    def update(self, outputs: Any, batch: Any, weight: float, check: bool = False) -> None:
        """Process the predictions for a batch. There are no functions to check."""
        self._evaluator.process(data_samples=outputs, data_batch=batch)

    def compute(
        self, total: Callable[[Tensor], Tensor] = lambda value: value, losses: Average | None = None
    ) -> dict[str, Any]:
        """Return the results of all metrics, which collect the results of all processes. These loops have no losses."""
        try:
            size = len(self._dataset)
        except TypeError:  # a stream or a list of batches: use all stored results
            stored = max((len(getattr(metric, "results", ())) for metric in self._evaluator.metrics), default=0)
            size = sum(all_gather_object(stored))
        return {name: as_number(plain(value)) for name, value in self._evaluator.evaluate(size).items()}

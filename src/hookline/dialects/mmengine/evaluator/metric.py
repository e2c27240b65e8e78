"""BaseMetric, which collects results per batch and computes metrics from all of them at the end."""

from __future__ import annotations

import logging
import pickle
from abc import ABCMeta, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from hookline.common.forwarding import forwarded
from hookline.dialects.mmengine.dist import broadcast_object_list, collect_results
from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError

log = logging.getLogger("hookline")


class BaseMetric(metaclass=ABCMeta):
    """A metric: `process` adds results of every batch to `self.results`, `compute_metrics` computes numbers from them.

    Args:
        collect_device: `cpu` or `gpu`. Accepted, but has no effect: several processes collect results on the CPU.
        prefix: The prefix of the metric names. Defaults to `default_prefix`.
        collect_dir: Accepted, but has no effect: no folder is needed.
    """

    default_prefix: ClassVar[str | None] = None

    def __init__(self, collect_device: str = "cpu", prefix: str | None = None, collect_dir: str | None = None) -> None:
        if collect_device not in ("cpu", "gpu"):
            raise ConfigValueError(
                f"{type(self).__name__}: collect_device must be 'cpu' or 'gpu', not {collect_device!r}"
            )
        if collect_dir is not None and collect_device != "cpu":
            raise ConfigValueError(f"{type(self).__name__}: collect_dir is only allowed with collect_device='cpu'")
        self._dataset_meta: dict[str, Any] | None = None
        self.collect_device = collect_device
        self.results: list[Any] = []
        self.prefix = prefix or self.default_prefix
        self.collect_dir = collect_dir
        if self.prefix is None:
            log.debug("%s has no prefix: its metrics keep the names from compute_metrics", type(self).__name__)

    dataset_meta: dict[str, Any] | None = forwarded(
        "_dataset_meta", "Return the metadata of the dataset, such as class names.", settable=True
    )

    @abstractmethod
    def process(self, data_batch: Any, data_samples: Sequence[dict[str, Any]]) -> None:
        """Add the needed parts of a batch and its predictions to `self.results`."""

    @abstractmethod
    def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
        """Return the metrics, by name, computed from all stored results."""

    def evaluate(self, size: int) -> dict[str, Any]:
        """Return the metrics over a dataset of this size, and clear the stored results.

        The first process computes them from the results of all processes, without repeated samples.
        """
        if not self.results:
            log.warning(
                "%s stored no results to compute metrics from; does its process() add to self.results?",
                type(self).__name__,
            )
        kept = collect_results(to_cpu(self.results), size, self.collect_device, self.collect_dir)
        self.results.clear()
        found = [self._compute(kept) if kept is not None else {}]
        broadcast_object_list(found)
        return found[0]

    def _compute(self, results: list[Any]) -> dict[str, Any]:
        """Return the metrics with their prefix. Only the first process calls this."""
        found = self.compute_metrics(results)
        if not isinstance(found, Mapping):
            raise ConfigTypeError(
                f"{type(self).__name__}.compute_metrics must return a dict such as dict(accuracy=0.9), not {found!r}"
            )
        return {f"{self.prefix}/{name}" if self.prefix else name: value for name, value in found.items()}


class DumpResults(BaseMetric):
    """Writes all predictions to a pickle file and computes no metrics.

    Args:
        out_file_path: The file. Its name must end with `.pkl` or `.pickle`.
        collect_device: Accepted, but has no effect.
        collect_dir: Accepted, but has no effect.
    """

    def __init__(self, out_file_path: str, collect_device: str = "cpu", collect_dir: str | None = None) -> None:
        super().__init__(collect_device, None, collect_dir)
        if not str(out_file_path).endswith((".pkl", ".pickle")):
            raise ConfigValueError(f"DumpResults: the file name must end with .pkl or .pickle; got {out_file_path!r}")
        self.out_file_path = out_file_path

    def process(self, data_batch: Any, data_samples: Sequence[dict[str, Any]]) -> None:
        """Store the predictions."""
        self.results.extend(to_cpu(data_samples))

    def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
        """Write the stored predictions to the file."""
        Path(self.out_file_path).parent.mkdir(parents=True, exist_ok=True)
        with open(self.out_file_path, "wb") as file:
            pickle.dump(results, file)
        log.info("saved the predictions to %s", self.out_file_path)
        return {}


def to_cpu(data: Any) -> Any:
    """Return the data on the CPU: tensors, even inside containers, and objects with a `to` method."""
    if isinstance(data, Tensor):
        return data.detach().cpu()
    if isinstance(data, list):
        return [to_cpu(each) for each in data]
    if isinstance(data, tuple):
        moved = [to_cpu(each) for each in data]
        return type(data)(*moved) if hasattr(data, "_fields") else tuple(moved)
    if isinstance(data, Mapping):
        return {name: to_cpu(value) for name, value in data.items()}
    return data.to("cpu") if hasattr(data, "to") else data


#: The name under which projects import it.
_to_cpu = to_cpu


def check_metric(given: Any) -> None:
    """Raise an error unless the object can be used as a metric."""
    if not isinstance(given, BaseMetric) and not (hasattr(given, "process") and hasattr(given, "evaluate")):
        raise ConfigTypeError(f"a metric must be a BaseMetric or a dict with a 'type', not {given!r}")

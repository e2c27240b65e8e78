"""BaseMetric: what each batch gives is kept, and at the end metrics are computed of it all."""

from __future__ import annotations

import logging
import pickle
from abc import ABCMeta, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError

log = logging.getLogger("hookline")


class BaseMetric(metaclass=ABCMeta):
    """A metric: `process` keeps something of every batch in `self.results`, `compute_metrics` makes numbers of it.

    Args:
        collect_device: Not needed in one process: `cpu` or `gpu`.
        prefix: What the names of its numbers begin with; `default_prefix`, unless given.
        collect_dir: Not needed in one process.
    """

    default_prefix: ClassVar[str | None] = None

    def __init__(self, collect_device: str = "cpu", prefix: str | None = None, collect_dir: str | None = None) -> None:
        if collect_device not in ("cpu", "gpu"):
            raise ConfigValueError(f"{type(self).__name__}: collect_device is 'cpu' or 'gpu', not {collect_device!r}")
        if collect_dir is not None and collect_device != "cpu":
            raise ConfigValueError(f"{type(self).__name__}: collect_dir is for collect_device='cpu'")
        self._dataset_meta: dict[str, Any] | None = None
        self.collect_device = collect_device
        self.results: list[Any] = []
        self.prefix = prefix or self.default_prefix
        self.collect_dir = collect_dir
        if self.prefix is None:
            log.debug("%s has no prefix: its metrics are named as compute_metrics names them", type(self).__name__)

    @property
    def dataset_meta(self) -> dict[str, Any] | None:
        """What is known about the data: the names of its classes, for one."""
        return self._dataset_meta

    @dataset_meta.setter
    def dataset_meta(self, dataset_meta: dict[str, Any]) -> None:
        self._dataset_meta = dataset_meta

    @abstractmethod
    def process(self, data_batch: Any, data_samples: Sequence[dict[str, Any]]) -> None:
        """Keep what is needed of a batch and its predictions in `self.results`."""

    @abstractmethod
    def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
        """The numbers, by name, of all that was kept."""

    def evaluate(self, size: int) -> dict[str, Any]:
        """The numbers over a data set of this size; what was kept is forgotten."""
        if not self.results:
            log.warning(
                "%s has kept nothing to compute metrics of; does its process() add to self.results?",
                type(self).__name__,
            )
        kept = to_cpu(self.results[:size])
        self.results.clear()
        found = self.compute_metrics(kept)
        if not isinstance(found, Mapping):
            raise ConfigTypeError(
                f"{type(self).__name__}.compute_metrics gives numbers by name, as dict(accuracy=0.9), not {found!r}"
            )
        return {f"{self.prefix}/{name}" if self.prefix else name: value for name, value in found.items()}


class DumpResults(BaseMetric):
    """Writes all predictions to a file, with pickle, and measures nothing.

    Args:
        out_file_path: The file; its name ends with `.pkl` or `.pickle`.
        collect_device: Not needed in one process.
        collect_dir: Not needed in one process.
    """

    def __init__(self, out_file_path: str, collect_device: str = "cpu", collect_dir: str | None = None) -> None:
        super().__init__(collect_device, None, collect_dir)
        if not str(out_file_path).endswith((".pkl", ".pickle")):
            raise ConfigValueError(
                f"DumpResults: the name of the file ends with .pkl or .pickle, not {out_file_path!r}"
            )
        self.out_file_path = out_file_path

    def process(self, data_batch: Any, data_samples: Sequence[dict[str, Any]]) -> None:
        """Keep the predictions."""
        self.results.extend(to_cpu(data_samples))

    def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
        """Write them."""
        Path(self.out_file_path).parent.mkdir(parents=True, exist_ok=True)
        with open(self.out_file_path, "wb") as file:
            pickle.dump(results, file)
        log.info("the predictions are in %s", self.out_file_path)
        return {}


def to_cpu(data: Any) -> Any:
    """The same on the CPU: tensors in containers, and what has a `to`."""
    if isinstance(data, Tensor):
        return data.detach().cpu()
    if hasattr(data, "to_dict"):
        return to_cpu(data.to_dict())
    if isinstance(data, list):
        return [to_cpu(each) for each in data]
    if isinstance(data, tuple):
        moved = [to_cpu(each) for each in data]
        return type(data)(*moved) if hasattr(data, "_fields") else tuple(moved)
    if isinstance(data, Mapping):
        return {name: to_cpu(value) for name, value in data.items()}
    return data.to("cpu") if hasattr(data, "to") else data


def refuse_no_metric(given: Any) -> None:
    """Refuse what cannot be a metric."""
    if not isinstance(given, BaseMetric) and not (hasattr(given, "process") and hasattr(given, "evaluate")):
        raise ConfigTypeError(f"a metric is a BaseMetric or a dict that describes one, not {given!r}")

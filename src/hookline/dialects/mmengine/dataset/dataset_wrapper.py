"""Datasets built from other datasets: joined, repeated, balanced."""

from __future__ import annotations

import copy
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NoReturn

import numpy as np
from torch.utils.data import ConcatDataset as TorchConcatDataset
from torch.utils.data import Dataset

from hookline.dialects.mmengine.dataset.base_dataset import force_full_init
from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.registry import DATASETS

__all__ = ["ClassBalancedDataset", "ConcatDataset", "RepeatDataset"]


class _Wrapper:
    """The base of all wrappers."""

    _metainfo: dict[str, Any]

    @property
    def metainfo(self) -> dict[str, Any]:
        """Return the metadata of the dataset."""
        return copy.deepcopy(self._metainfo)

    def get_subset_(self, indices: Any) -> NoReturn:
        """Refuse: take the subset of the wrapped dataset instead."""
        raise NotImplementedError(
            f"a {type(self).__name__} has no subset; take the subset of the dataset before you wrap it"
        )

    get_subset = get_subset_


def _build(given: Any) -> Any:
    dataset = DATASETS.build(given) if isinstance(given, Mapping) else given
    if not hasattr(dataset, "__getitem__"):
        raise ConfigTypeError(f"expected a dataset, or a dict that describes one, not {given!r}")
    return dataset


def _load_annotations(dataset: Any) -> None:
    if hasattr(dataset, "full_init"):
        dataset.full_init()


class ConcatDataset(_Wrapper, TorchConcatDataset[Any]):
    """Several datasets, one after the other; their metadata must be equal.

    Args:
        datasets: Datasets, or dicts that describe them.
        lazy_init: Whether to load their annotations only when they are first needed.
        ignore_keys: Keys of the metadata that may differ.
    """

    def __init__(
        self, datasets: Sequence[Any], lazy_init: bool = False, ignore_keys: str | Sequence[str] | None = None
    ) -> None:
        self.datasets = [_build(each) for each in datasets]
        self.ignore_keys = [ignore_keys] if isinstance(ignore_keys, str) else list(ignore_keys or ())
        metainfos = [getattr(each, "metainfo", {}) for each in self.datasets]
        self._metainfo = metainfos[0] if metainfos else {}
        for number, own in enumerate(metainfos[1:], 2):
            for name in {*own, *self._metainfo} - {*self.ignore_keys}:
                if name not in own or name not in self._metainfo or not _equal(own[name], self._metainfo[name]):
                    raise ConfigValueError(
                        f"ConcatDataset: the metainfo '{name}' of dataset {number} is {own.get(name)!r}, but the "
                        f"first dataset has {self._metainfo.get(name)!r}; if that is intended, add it to ignore_keys"
                    )
        self._fully_initialized = False
        if not lazy_init:
            self.full_init()

    def full_init(self) -> None:
        """Load the annotations of all datasets."""
        for dataset in self.datasets:
            _load_annotations(dataset)
        self.cumulative_sizes = list(accumulate(map(len, self.datasets)))  # type: ignore[arg-type]  # datasets have a length
        self._fully_initialized = True

    @force_full_init
    def _get_ori_dataset_idx(self, idx: int) -> tuple[int, int]:
        length = len(self)
        if not -length <= idx < length:
            raise IndexError(f"index {idx} is out of range for {length} samples")
        idx %= length
        number = bisect_right(self.cumulative_sizes, idx)
        return number, idx - (self.cumulative_sizes[number - 1] if number else 0)

    def get_data_info(self, idx: int) -> dict[str, Any]:
        """Return the annotations of a sample."""
        number, index = self._get_ori_dataset_idx(idx)
        info: dict[str, Any] = self.datasets[number].get_data_info(index)  # type: ignore[attr-defined]
        return info

    @force_full_init
    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: int) -> Any:
        number, index = self._get_ori_dataset_idx(idx)
        return self.datasets[number][index]


class _Indirect(_Wrapper, Dataset[Any]):
    """A dataset with the samples of another dataset under different indices."""

    def __init__(self, dataset: Any, lazy_init: bool) -> None:
        self.dataset = _build(dataset)
        self._metainfo = getattr(self.dataset, "metainfo", {})
        self._fully_initialized = False
        if not lazy_init:
            self.full_init()

    def full_init(self) -> None:
        """Load the annotations."""
        if not self._fully_initialized:
            _load_annotations(self.dataset)
            self._prepare()
            self._fully_initialized = True

    def _prepare(self) -> None:
        raise NotImplementedError

    def _get_ori_dataset_idx(self, idx: int) -> int:
        raise NotImplementedError

    def get_data_info(self, idx: int) -> dict[str, Any]:
        """Return the annotations of a sample."""
        info: dict[str, Any] = self.dataset.get_data_info(self._get_ori_dataset_idx(idx))
        return info

    def get_cat_ids(self, idx: int) -> list[int]:
        """Return the categories in a sample."""
        found: list[int] = self.dataset.get_cat_ids(self._get_ori_dataset_idx(idx))
        return found

    def __getitem__(self, idx: int) -> Any:
        return self.dataset[self._get_ori_dataset_idx(idx)]


class RepeatDataset(_Indirect):
    """A dataset, repeated several times.

    Args:
        dataset: The dataset, or a dict that describes it.
        times: The number of repetitions.
        lazy_init: Whether to load its annotations only when they are first needed.
    """

    def __init__(self, dataset: Any, times: int, lazy_init: bool = False) -> None:
        self.times = times
        super().__init__(dataset, lazy_init)

    def _prepare(self) -> None:
        self._ori_len = len(self.dataset)

    @force_full_init
    def _get_ori_dataset_idx(self, idx: int) -> int:
        return idx % self._ori_len

    @force_full_init
    def __len__(self) -> int:
        return self.times * self._ori_len


class ClassBalancedDataset(_Indirect):
    """A dataset in which samples of rare categories appear more than once.

    A category that is in a fraction f of the samples is repeated max(1, sqrt(oversample_thr / f)) times. A sample is
    repeated as often as its rarest category.

    Args:
        dataset: The dataset, with `get_cat_ids`, or a dict that describes it.
        oversample_thr: A category that is in a smaller fraction of the samples is rare.
        lazy_init: Whether to load its annotations only when they are first needed.
    """

    def __init__(self, dataset: Any, oversample_thr: float, lazy_init: bool = False) -> None:
        self.oversample_thr = oversample_thr
        super().__init__(dataset, lazy_init)

    def _prepare(self) -> None:
        of_sample = [set(self.dataset.get_cat_ids(index)) for index in range(len(self.dataset))]
        counts = Counter(category for categories in of_sample for category in categories)
        repeats = {
            category: max(1.0, math.sqrt(self.oversample_thr / (count / len(of_sample))))
            for category, count in counts.items()
        }
        factors = [max((repeats[category] for category in categories), default=1.0) for categories in of_sample]
        self.repeat_indices = [index for index, factor in enumerate(factors) for _ in range(math.ceil(factor))]

    @force_full_init
    def _get_ori_dataset_idx(self, idx: int) -> int:
        return self.repeat_indices[idx]

    @force_full_init
    def __len__(self) -> int:
        return len(self.repeat_indices)


def _equal(first: Any, second: Any) -> bool:
    if type(first) is not type(second):
        return False
    return np.array_equal(first, second) if isinstance(first, np.ndarray) else bool(first == second)

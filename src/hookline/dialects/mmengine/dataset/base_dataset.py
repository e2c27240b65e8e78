"""BaseDataset: the samples in an annotation file, passed through a pipeline of transforms."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
from torch.utils.data import Dataset

from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.fileio import join_path, list_from_file, load
from hookline.dialects.mmengine.registry import TRANSFORMS
from hookline.dialects.mmengine.utils import is_abs
from hookline.errors import DataError

__all__ = ["BaseDataset", "Compose", "force_full_init"]

F = TypeVar("F", bound=Callable[..., Any])


class Compose:
    """Applies transforms one after the other; if one returns None, the result is None.

    Args:
        transforms: Callables, or dicts with `type`.
    """

    def __init__(self, transforms: Sequence[Mapping[str, Any] | Callable[..., Any]] | None) -> None:
        self.transforms = [TRANSFORMS.build(each) if isinstance(each, Mapping) else each for each in transforms or ()]
        for transform in self.transforms:
            if not callable(transform):
                raise ConfigTypeError(f"a transform must be callable, and {transform!r} is not")

    def __call__(self, data: Any) -> Any:
        """Transform the data of a sample."""
        for transform in self.transforms:
            data = transform(data)
            if data is None:
                return None
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}(" + "".join(f"\n    {each}" for each in self.transforms) + "\n)"


def force_full_init(old_func: F) -> F:
    """Decorate a method so that it first loads the annotations, if they are not loaded yet."""

    @functools.wraps(old_func)
    def complete(dataset: Any, *args: Any, **kwargs: Any) -> Any:
        if not getattr(dataset, "_fully_initialized", False):
            dataset.full_init()
            dataset._fully_initialized = True
        return old_func(dataset, *args, **kwargs)

    return complete  # type: ignore[return-value]  # it has the same signature


class BaseDataset(Dataset[Any]):
    """The samples of an annotation file: JSON or YAML with `metainfo` and `data_list`.

    A subclass may change how they are loaded (`load_data_list`, `parse_data_info`, `filter_data`).

    Args:
        ann_file: The annotation file.
        metainfo: Metadata of the dataset; it overrides the metadata of the class (`METAINFO`) and of the file.
        data_root: The folder that relative paths start from.
        data_prefix: Prefixes for the paths in the annotations, by key.
        filter_cfg: Settings for `filter_data`.
        indices: Use only this many samples, or only the samples with these indices.
        serialize_data: Accepted, but has no effect: forked workers share the list as it is.
        pipeline: Transforms, or dicts that describe them.
        test_mode: Whether a sample for which the pipeline returns None is an error.
        lazy_init: Whether to load the annotations only when they are first needed.
        max_refetch: How many other samples to try when the pipeline returns None for one.
    """

    METAINFO: ClassVar[dict[str, Any]] = {}
    _fully_initialized = False

    def __init__(
        self,
        ann_file: str = "",
        metainfo: Mapping[str, Any] | None = None,
        data_root: str = "",
        data_prefix: Mapping[str, str] | None = None,
        filter_cfg: Mapping[str, Any] | None = None,
        indices: int | Sequence[int] | None = None,
        serialize_data: bool = True,
        pipeline: Sequence[Any] = (),
        test_mode: bool = False,
        lazy_init: bool = False,
        max_refetch: int = 1000,
    ) -> None:
        self.ann_file = ann_file
        self._metainfo = self._load_metainfo(metainfo)
        self.data_root = data_root
        self.data_prefix: dict[str, Any] = {"img_path": ""} if data_prefix is None else dict(data_prefix)
        self.filter_cfg = copy.deepcopy(filter_cfg)
        self._indices = indices
        self.serialize_data = serialize_data
        self.test_mode = test_mode
        self.max_refetch = max_refetch
        self.data_list: list[dict[str, Any]] = []
        if self.data_root is not None:
            self._join_prefix()
        self.pipeline = Compose(pipeline)
        if not lazy_init:
            self.full_init()

    def _join_prefix(self) -> None:
        """Let the annotation file and the prefixes start from the data root; a subclass may override this."""
        if self.ann_file and self.data_root and not is_abs(self.ann_file):
            self.ann_file = join_path(self.data_root, self.ann_file)
        self.data_prefix = {name: self._below_root(prefix) for name, prefix in self.data_prefix.items()}

    def _below_root(self, prefix: Any) -> str:
        if not isinstance(prefix, str):
            raise ConfigTypeError(f"a data_prefix must be a string, not a {type(prefix).__name__}")
        return join_path(self.data_root, prefix) if self.data_root and not is_abs(prefix) else prefix

    @classmethod
    def _load_metainfo(cls, metainfo: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Merge the given metadata into the class's metadata; a string that names a file is replaced by its lines."""
        found = copy.deepcopy(cls.METAINFO)
        for name, value in (metainfo or {}).items():
            try:
                found[name] = list_from_file(value) if isinstance(value, str) else copy.deepcopy(value)
            except OSError:
                found[name] = value
        return found

    def full_init(self) -> None:
        """Load the annotations, unless they are loaded already."""
        if self._fully_initialized:
            return
        self.data_list = self.load_data_list()
        self.data_list = self.filter_data()
        if self._indices is not None:
            self.data_list = self._get_unserialized_subset(self._indices)
        self._fully_initialized = True

    def load_data_list(self) -> list[dict[str, Any]]:
        """Read the samples from the annotation file."""
        found = load(self.ann_file)
        if not isinstance(found, dict):
            raise ConfigTypeError(f"{self.ann_file}: annotations must be a dict, not a {type(found).__name__}")
        if "data_list" not in found or "metainfo" not in found:
            raise ConfigValueError(
                f"{self.ann_file}: annotations must have 'metainfo' and 'data_list'; these have {sorted(found)}"
            )
        for name, value in found["metainfo"].items():
            self._metainfo.setdefault(name, value)
        samples: list[dict[str, Any]] = []
        for raw in found["data_list"]:
            parsed = self.parse_data_info(raw)
            several = parsed if isinstance(parsed, list) else [parsed]
            if not all(isinstance(each, dict) for each in several):
                raise ConfigTypeError(f"{type(self).__name__}.parse_data_info must return a dict or a list of dicts")
            samples += several
        return samples

    def parse_data_info(self, raw_data_info: dict[str, Any]) -> dict[str, Any] | list[dict[str, Any]]:
        """Convert one entry of the annotation file to one or several samples."""
        for name, prefix in self.data_prefix.items():
            if name not in raw_data_info:
                raise ConfigValueError(f"{self.ann_file}: a sample has no '{name}', but data_prefix names that key")
            raw_data_info[name] = join_path(prefix, raw_data_info[name])
        return raw_data_info

    def filter_data(self) -> list[dict[str, Any]]:
        """Return the samples to use: all of them, unless a subclass selects some."""
        return self.data_list

    @property
    def metainfo(self) -> dict[str, Any]:
        """Return the metadata of the dataset."""
        return copy.deepcopy(self._metainfo)

    @force_full_init
    def get_data_info(self, idx: int) -> dict[str, Any]:
        """Return the annotations of a sample."""
        info = copy.deepcopy(self.data_list[idx])
        info["sample_idx"] = idx if idx >= 0 else len(self) + idx
        return info

    def get_cat_ids(self, idx: int) -> list[int]:
        """Return the categories in a sample; a subclass must implement this."""
        raise NotImplementedError(
            f"{type(self).__name__} must define get_cat_ids(idx), which returns the categories of a sample"
        )

    def prepare_data(self, idx: int) -> Any:
        """Return a sample as processed by the pipeline."""
        return self.pipeline(self.get_data_info(idx))

    @force_full_init
    def __getitem__(self, idx: int) -> Any:
        for _ in range(1 if self.test_mode else self.max_refetch + 1):
            data = self.prepare_data(idx)
            if data is not None:
                return data
            idx = self._rand_another() if not self.test_mode else idx
        if self.test_mode:
            raise DataError(
                f"{type(self).__name__}: the pipeline returned None for sample {idx}, which is an error in test mode"
            )
        raise DataError(
            f"{type(self).__name__}: the pipeline returned None for {self.max_refetch + 1} samples in a row"
        )

    def _rand_another(self) -> int:
        return int(np.random.randint(0, len(self)))

    @force_full_init
    def __len__(self) -> int:
        return len(self.data_list)

    def _get_unserialized_subset(self, indices: int | Sequence[int]) -> list[dict[str, Any]]:
        if isinstance(indices, int):
            return self.data_list[:indices] if indices >= 0 else self.data_list[indices:]
        if not isinstance(indices, Sequence):
            raise ConfigTypeError(f"indices must be a number or a list of numbers, not a {type(indices).__name__}")
        return [self.data_list[index] for index in indices]

    def _serialize_data(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return all samples as bytes, and where each of them ends, for subclasses that call this. The list stays."""
        pickled = [np.frombuffer(pickle.dumps(each, protocol=4), dtype=np.uint8) for each in self.data_list]
        ends = np.cumsum([len(each) for each in pickled], dtype=np.int64)
        return np.concatenate(pickled) if pickled else np.empty(0, np.uint8), ends

    @force_full_init
    def get_subset_(self, indices: int | Sequence[int]) -> None:
        """Keep only some of the samples: the first N (if negative, the last N), or those with these indices."""
        self.data_list = self._get_unserialized_subset(indices)

    @force_full_init
    def get_subset(self, indices: int | Sequence[int]) -> BaseDataset:
        """Return a dataset with some of the samples."""
        other = copy.copy(self)
        other.data_list = copy.deepcopy(self._get_unserialized_subset(indices))
        return other

"""InstanceData: data fields of equal length, one entry per instance."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hookline.dialects.mmengine.structures.base_data_element import OWN, BaseDataElement

BoolTypeTensor = LongTypeTensor = Tensor
#: What instances can be selected with. A tensor must hold whole numbers or booleans.
IndexType = str | slice | int | list[Any] | Tensor | np.ndarray[Any, Any]
INDICES = (str, slice, int, list, Tensor, np.ndarray)


class InstanceData(BaseDataElement):
    """Annotations or predictions of instances. All data fields have the same length.

    Values are tensors, arrays, lists, tuples, strings, or objects with `__len__`, `__getitem__` and `cat`. An index
    selects instances: a number, a slice, a list of numbers, or a tensor or array of numbers or booleans.

    >>> found = InstanceData(scores=torch.tensor([0.5, 0.25, 1.0]), names=["a", "b", "c"])
    >>> len(found), found[found.scores > 0.3].names, found[-1].scores
    (3, ['a', 'c'], tensor([1.]))
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in OWN:
            assert isinstance(value, Sized), f"'{name}' of an {type(self).__name__} must have a length"
            assert not len(self) or len(value) == len(self), (
                f"'{name}' has {len(value)} entries, but this {type(self).__name__} has {len(self)} instances"
            )
        super().__setattr__(name, value)

    __setitem__ = __setattr__

    def __getitem__(self, item: Any) -> Any:
        assert isinstance(item, INDICES), f"instances cannot be selected with a {type(item).__name__}"
        if isinstance(item, str):
            return getattr(self, item)
        if isinstance(item, list):
            item = np.array(item)
        if isinstance(item, np.ndarray):
            item = torch.from_numpy(item.astype(np.int64) if item.dtype == np.int32 else item)
        if isinstance(item, int):
            if not -len(self) <= item < len(self):
                raise IndexError(f"instance {item} does not exist: there are {len(self)}")
            item = slice(item, None, len(self))
        made = type(self)(metainfo=self.metainfo)
        if isinstance(item, Tensor):
            assert item.dtype in (torch.bool, torch.int64), f"instances cannot be selected with {item.dtype}"
            assert item.dim() == 1, f"instances are selected with one dimension, not with {item.dim()}"
            assert item.dtype != torch.bool or len(item) == len(self), (
                f"{len(item)} booleans cannot select from {len(self)} instances"
            )
        for name, value in self.items():
            made[name] = _select(name, value, item) if isinstance(item, Tensor) else value[item]
        return made

    @staticmethod
    def cat(instances_list: Sequence[InstanceData]) -> InstanceData:
        """Return the instances of several elements with the same fields in one."""
        assert instances_list, "there is nothing to concatenate"
        assert all(isinstance(each, InstanceData) for each in instances_list), "only InstanceData can be concatenated"
        first = instances_list[0]
        if len(instances_list) == 1:
            return first
        fields = [set(each.all_keys()) for each in instances_list]
        assert all(each == fields[0] for each in fields), (
            f"elements with different fields cannot be concatenated: {[sorted(each) for each in fields]}"
        )
        made = type(first)(metainfo=first.metainfo)
        for name, _ in first.items():
            made[name] = _join(name, [each[name] for each in instances_list])
        return made

    def __len__(self) -> int:
        return len(self.values()[0]) if self._data_fields else 0


def _select(name: str, value: Any, index: Tensor) -> Any:
    """Return the entries of a value that a tensor of numbers or booleans selects."""
    if isinstance(value, Tensor):
        return value[index]
    if isinstance(value, np.ndarray):
        return value[index.cpu().numpy()]
    plain = isinstance(value, (str, list, tuple))
    if not plain and not (hasattr(value, "__getitem__") and hasattr(value, "cat")):
        raise ValueError(f"'{name}' is a {type(value).__name__} without a method 'cat', so it cannot be indexed")
    numbers = (torch.nonzero(index).view(-1) if index.dtype == torch.bool else index).tolist()
    parts = [value[slice(number, None, len(value))] for number in numbers] or [value[:0]]
    return _join(name, parts) if plain else value.cat(parts)


def _join(name: str, values: list[Any]) -> Any:
    """Return the entries of several values of a kind in one."""
    first = values[0]
    if isinstance(first, Tensor):
        return torch.cat(values, dim=0)
    if isinstance(first, np.ndarray):
        return np.concatenate(values, axis=0)
    if isinstance(first, (str, list, tuple)):
        joined = first[:]
        for each in values[1:]:
            joined = joined + each
        return joined
    if hasattr(first, "cat"):
        return first.cat(values)
    raise ValueError(f"'{name}' is a {type(first).__name__} without a method 'cat', so it cannot be concatenated")

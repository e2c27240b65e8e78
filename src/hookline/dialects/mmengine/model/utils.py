"""Helper functions for models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError


def stack_batch(tensor_list: list[Tensor], pad_size_divisor: int = 1, pad_value: float = 0) -> Tensor:
    """Stack tensors into one, padded to the same size at the end of each dimension except the first.

    >>> stack_batch([torch.zeros(1, 2, 3), torch.zeros(1, 3, 2)], pad_size_divisor=2).shape
    torch.Size([2, 1, 4, 4])
    """
    if not isinstance(tensor_list, list) or not tensor_list:
        raise ConfigTypeError(f"stack_batch expects a list with at least one tensor, not {type(tensor_list).__name__}")
    if len({(each.ndim, each.shape[0]) for each in tensor_list}) > 1:
        raise ConfigValueError(
            "stack_batch expects tensors with the same number of dimensions and channels, not the shapes "
            + ", ".join(str(tuple(each.shape)) for each in tensor_list)
        )
    sizes = [max(each.shape[axis] for each in tensor_list) for axis in range(1, tensor_list[0].ndim)]
    sizes = [-(-size // pad_size_divisor) * pad_size_divisor for size in sizes]
    padded = []
    for each in tensor_list:
        missing = [size - each.shape[axis + 1] for axis, size in enumerate(sizes)]
        padded.append(pad(each, [part for size in reversed(missing) for part in (0, size)], value=pad_value))
    return torch.stack(padded)


def merge_dict(*args: dict[str, Any]) -> dict[str, Any]:
    """Merge several dicts into a new one. Later entries win."""
    merged: dict[str, Any] = {}
    for each in args:
        merged.update(each)
    return merged

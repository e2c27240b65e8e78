"""Tensors with NaN or Inf: how to find them, where they are in memory, and how to describe them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from hookline.common.numbers import as_number
from hookline.common.sharding import local_part


def values_of(tensor: Tensor) -> Tensor:
    """Return the numbers of a tensor: its part of this process, and of a sparse one those that it stores."""
    part = local_part(tensor.detach())
    return part if part.layout == torch.strided else part.coalesce().values() if part.is_sparse else part.values()


def is_bad(tensor: Tensor) -> bool:
    """Return whether a tensor has NaN or Inf."""
    if tensor.is_meta or not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return False
    try:
        return not bool(values_of(tensor).isfinite().all())
    except (RuntimeError, NotImplementedError):  # a kind of numbers that torch cannot look at
        return False


def memory_of(tensor: Tensor) -> int:
    """Return the address of the memory of a tensor, which its views share; its identity if it has none."""
    try:
        part = local_part(tensor)
        return part.untyped_storage().data_ptr() or id(tensor)
    except (RuntimeError, NotImplementedError):  # sparse tensors have no storage
        return id(tensor)


def named_tensors(value: Any, name: str = "batch") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a batch with their places, such as `batch[0]` or `batch['image']`."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from named_tensors(each, f"{name}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for number, each in enumerate(value):
            yield from named_tensors(each, f"{name}[{number}]")
    elif isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, type):
        for key, each in vars(value).items():
            if isinstance(each, (Tensor, Mapping, list, tuple)):
                yield from named_tensors(each, f"{name}.{key}")


def count_bad(tensor: Tensor) -> str:
    """Return how many numbers are NaN or Inf: `2 of 32 numbers are NaN`."""
    values = values_of(tensor)
    counts = {"NaN": int(values.isnan().sum()), "Inf": int(values.isinf().sum())}
    texts = [f"{number} of {values.numel()} numbers are {name}" for name, number in counts.items() if number]
    return ", ".join(texts) or "all numbers are finite"


def describe(tensor: Tensor) -> str:
    """Return the type, the shape and the range of a tensor: `float32 (8, 4) from -1.2000 to 3.1000`."""
    kind = f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
    values = values_of(tensor)
    if values.is_complex() or not values.numel():
        return kind
    finite = values.double()[values.isfinite()]
    bad = f", {count_bad(values)}" if len(finite) < values.numel() else ""
    if not len(finite):
        return kind + bad
    return f"{kind} from {as_number(float(finite.min()))} to {as_number(float(finite.max()))}{bad}"

"""Tensors that are distributed over processes (DTensors of torch), as one process sees them: its own part of each.

All functions accept ordinary tensors, too. Nothing here talks to other processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline.common.torch_private import part_of

if TYPE_CHECKING:
    from torch import Tensor


def is_sharded(value: Any) -> bool:
    """Return whether a value is a DTensor. An isinstance test would import torch's distributed package."""
    return hasattr(value, "to_local")


def local_part(tensor: Tensor) -> Tensor:
    """Return the part of this process, which shares memory with the tensor. An ordinary tensor is returned itself."""
    return tensor.detach().to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]  # a DTensor


def place_of(tensor: Any) -> tuple[list[int], list[int]]:
    """Return where the part of this process begins in a DTensor, and its sizes, in each dimension."""
    sizes, offsets = part_of(tensor)
    return list(offsets), list(sizes)


def part_like(value: Any, like: Any) -> Tensor:
    """Return a whole tensor in the form of another one of its shape: distributed over processes, or unchanged.

    `value` may also be a tensor in a file, of which only the part of this process is read.
    """
    if not is_sharded(like):
        return value.read() if hasattr(value, "read") else value  # type: ignore[no-any-return]  # a stored tensor
    if is_sharded(value):
        return value  # type: ignore[no-any-return]  # a DTensor
    from torch.distributed.tensor import DTensor

    offsets, sizes = place_of(like)
    if hasattr(value, "read"):
        part = value.read(offsets, sizes)
    else:
        part = value
        for dimension, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
            part = part.narrow(dimension, min(offset, part.shape[dimension]), size)
    local = part.to(like.to_local().device, copy=True).contiguous()
    return DTensor.from_local(
        local, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )

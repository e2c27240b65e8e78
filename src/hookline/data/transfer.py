"""Moving batches to the device: tensors in nested containers, and objects with a `.to`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def to_device(batch: Any, device: torch.device) -> Any:
    """Return the batch on the device.

    Tuples and named tuples keep their type; mappings become dicts. Tensors that are already on the device are not
    copied.
    """
    if isinstance(batch, Tensor):
        return batch if batch.device == device else batch.to(device, non_blocking=batch.is_pinned())
    if hasattr(batch, "to"):  # also containers that move themselves, such as a PackedSequence
        return batch.to(device)
    if isinstance(batch, list):
        return [to_device(item, device) for item in batch]
    if isinstance(batch, tuple):
        moved = [to_device(item, device) for item in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else tuple(moved)
    if isinstance(batch, Mapping):
        return {name: to_device(value, device) for name, value in batch.items()}
    return batch

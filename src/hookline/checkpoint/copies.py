"""In-memory copies of a state, to write while training continues or to keep in case of a failure."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy as shallow_copy
from typing import Any

import torch
from torch import Tensor

from hookline.common.sharding import is_sharded


class Copies:
    """Copies a tree of tensors and plain data into memory that is reused for the next copy of the same shapes.

    Allocating memory takes several times as long as filling it, so the second copy is much faster than the first.
    A copy is valid until the next one is taken.
    """

    def __init__(self) -> None:
        self._memory: dict[tuple[Any, ...], Tensor] = {}

    def take(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of the tree on the CPU; a tensor that occurs several times is copied once and stays shared."""
        used: dict[tuple[Any, ...], Tensor] = {}
        known: dict[tuple[Any, ...], Tensor] = {}

        def copy(value: Any, place: tuple[Any, ...]) -> Any:
            if is_sharded(value):
                return value.detach().clone()
            if isinstance(value, Tensor) and (value.layout is not torch.strided or value.is_quantized):
                return value.detach().cpu().clone()
            if isinstance(value, Tensor):
                same = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
                if same not in known or not value.numel():
                    known[same] = used[place] = self._copy(value.detach(), place)
                return known[same]
            if isinstance(value, dict):
                copied = shallow_copy(value)  # keeps the type and its attributes, such as those of a model's state_dict
                for key, inner in value.items():
                    copied[key] = copy(inner, (*place, key))
                return copied
            if isinstance(value, (list, tuple)):
                return type(value)(copy(inner, (*place, index)) for index, inner in enumerate(value))
            return value

        copied = {key: copy(value, (key,)) for key, value in tree.items()}
        self._memory = used
        return copied

    def _copy(self, value: Tensor, place: tuple[Any, ...]) -> Tensor:
        memory = self._memory.get(place)
        if memory is None or memory.shape != value.shape or memory.dtype != value.dtype:
            memory = torch.empty(value.shape, dtype=value.dtype)
        return memory.copy_(value)

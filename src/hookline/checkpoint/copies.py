"""In-memory copies of a state, to write while training continues or to keep in case of a failure."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from copy import copy as shallow_copy
from typing import Any

import torch
from torch import Tensor

from hookline.common.plain import PLAIN
from hookline.common.sharding import is_sharded

#: The bytes of a piece that a thread copies at a time. Smaller tensors are copied by torch.
LARGE = 1 << 20
#: The number of pieces from which a second thread helps.
WORTH_A_THREAD = 8


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
        large: list[tuple[Tensor, Tensor]] = []

        def copy(value: Any, place: tuple[Any, ...]) -> Any:
            if is_sharded(value):
                return value.detach().clone()
            if isinstance(value, Tensor) and (value.layout is not torch.strided or value.is_quantized):
                return value.detach().cpu().clone()
            if isinstance(value, Tensor):
                same = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
                if same not in known or not value.numel():
                    known[same] = used[place] = self._copy(value.detach(), place, large)
                return known[same]
            if isinstance(value, dict):
                copied = shallow_copy(value)  # keeps the type and its attributes, as in a model's state_dict
                if PLAIN.issuperset(map(type, value.values())):
                    return copied
                for key, inner in value.items():
                    copied[key] = copy(inner, (*place, key))
                return copied
            if isinstance(value, (list, tuple)):
                if PLAIN.issuperset(map(type, value)):
                    return shallow_copy(value)
                return type(value)(copy(inner, (*place, index)) for index, inner in enumerate(value))
            return value

        copied = {key: copy(value, (key,)) for key, value in tree.items()}
        _fill_together(large)
        self._memory = used
        return copied

    def _copy(self, value: Tensor, place: tuple[Any, ...], large: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Copy a tensor, or note it for later if it is large and a mere piece of memory."""
        memory = self._memory.get(place)
        if memory is None or memory.shape != value.shape or memory.dtype != value.dtype:
            memory = torch.empty(value.shape, dtype=value.dtype)
        if value.nbytes < LARGE or not _is_plain_memory(value):
            return memory.copy_(value)
        large.append((memory, value))
        return memory


def _is_plain_memory(value: Tensor) -> bool:
    """Return whether the bytes of a tensor, one after the other, are its values."""
    return (
        type(value) is Tensor and value.is_cpu and value.is_contiguous() and not value.is_conj() and not value.is_neg()
    )


def _fill_together(pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Fill each first tensor with the second one, in this thread and in another one: one core alone takes longer.

    Each thread takes the next piece when it is done with one, so a thread that does not get a core delays nothing. The
    threads of torch would wait for each other.
    """
    pieces = deque(
        (memory.data_ptr() + start, value.data_ptr() + start, min(LARGE, value.nbytes - start))
        for memory, value in pairs
        for start in range(0, value.nbytes, LARGE)
    )

    def work() -> None:
        with suppress(IndexError):
            while True:
                ctypes.memmove(*pieces.popleft())  # without the interpreter lock

    if len(pieces) < WORTH_A_THREAD:
        work()
        return
    helper = threading.Thread(target=work, name="hookline-copy", daemon=True)
    helper.start()
    try:
        work()
    finally:
        pieces.clear()  # after an interrupt, too, nothing is written later
        helper.join()

"""The memory of this process: its resident size, and the tensors that an object holds."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from itertools import islice
from logging import Logger
from threading import Thread
from types import CellType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from hookline.common import forks

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: An object is searched this deep, and up to this many objects in all. Of a longer container, this many are looked at.
DEPTH, OBJECTS, ELEMENTS = 6, 4000, 64
#: Objects that refer to much that does not belong to them.
SHARED = (ModuleType, Logger, Thread)


@cache
def _statm() -> int | None:
    """Return a descriptor of the kernel's file with the sizes of this process; None where there is none."""
    try:
        return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


forks.call_in_children(_statm.cache_clear)  # the file of the parent shows the parent
_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """Return the bytes of memory that this process occupies. Without /proc, it is the most that it ever occupied."""
    for _ in range(2):
        file = _statm()
        if file is None:
            break
        try:
            return int(os.pread(file, 64, 0).split(None, 2)[1]) * _PAGE
        except (OSError, ValueError, IndexError):  # a program may close all descriptors, and another file has this one
            _statm.cache_clear()
    import resource
    import sys

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def on_device(name: torch.device | str | None) -> int | None:
    """Return the bytes of tensors on an accelerator; None for the CPU, or if the accelerator does not tell."""
    if name is None or str(name) == "cpu":
        return None
    import torch

    device = torch.device(name)
    module = getattr(torch, device.type, None)
    counter = getattr(module, "memory_allocated", None) or getattr(module, "current_allocated_memory", None)
    try:
        return None if counter is None else int(counter() if device.type == "mps" else counter(device))
    except RuntimeError:  # this build of torch does not have the device
        return None


@dataclass
class Held:
    """The bytes of tensors that an object holds: all of them, and those on an accelerator."""

    tensors: float = 0.0
    device: float = 0.0


class Search:
    """Adds up the tensors in objects. A storage counts once, for the first object that holds it.

    The search is bounded: of a long list, some elements are looked at, and their bytes are multiplied.
    """

    def __init__(self, never: Collection[type] = ()) -> None:
        """Create a search that does not look into objects of the types `never`."""
        self._never = (*SHARED, *never)
        self._storages: set[int] = set()
        self._seen: set[int] = set()
        self._left = 0

    def look_into(self, *roots: Any) -> Held:
        """Return the memory that these objects hold and no earlier object does."""
        held = Held()
        self._left = OBJECTS
        for root in roots:
            self._visit(root, 1.0, DEPTH, held)
        return held

    def _visit(self, value: Any, weight: float, depth: int, held: Held) -> None:
        try:
            self._look(value, weight, depth, held)
        except Exception:  # an object of the user may raise when it is looked at, as a proxy does
            return

    def _look(self, value: Any, weight: float, depth: int, held: Held) -> None:
        if self._left <= 0 or isinstance(value, (str, bytes, int, float, type(None), type)):
            return
        if id(value) in self._seen or isinstance(value, self._never):
            return
        self._left -= 1
        self._seen.add(id(value))
        import torch

        if isinstance(value, torch.Tensor):
            self._add(value, weight, held)
            if value.is_leaf and value.grad is not None:
                self._add(value.grad, weight, held)
        elif isinstance(value, torch.nn.Module):
            for tensor in (*value.parameters(), *value.buffers()):
                self._visit(tensor, weight, depth - 1, held)
        elif depth:
            elements, length = _elements(value)
            share = length / len(elements) if elements else 1.0
            for element in elements:
                self._visit(element, weight * share, depth - 1, held)

    def _add(self, tensor: Tensor, weight: float, held: Held) -> None:
        try:
            storage = tensor.untyped_storage()
            address, size = storage.data_ptr(), storage.nbytes()
        except (RuntimeError, NotImplementedError):  # the tensor has no storage, as a sparse one
            return
        if address not in self._storages:
            self._storages.add(address)
            held.tensors += size * weight
            if tensor.device.type != "cpu":
                held.device += size * weight


def _elements(value: Any) -> tuple[list[Any], int]:
    """Return the objects in a container, in a closure or in the attributes of an object, and how many there are.

    Only some of the objects of a long container are returned.
    """
    if isinstance(value, (list, tuple, deque, set, frozenset, dict)):
        step = -(-len(value) // ELEMENTS) or 1
        values = value.values() if isinstance(value, dict) else value
        return list(islice(values, 0, None, step)), len(value)
    if isinstance(value, MethodType):
        return [value.__self__], 1
    if isinstance(value, FunctionType):
        elements = [cell.cell_contents for cell in value.__closure__ or () if _is_set(cell)]
    else:
        held = getattr(value, "__dict__", None)
        elements = list(held.values()) if isinstance(held, dict) else []
    return elements, len(elements)


def _is_set(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # the variable has no value yet
        return False

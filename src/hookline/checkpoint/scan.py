"""Scan of a checkpoint before torch loads it: a file that would take far more memory or time than its size is refused.

`weights_only=True` runs no code from a file. Still, a few bytes can describe a list that never ends, a key that takes
years to hash, or a tensor of a terabyte. So the pickle is followed first, without creating anything. Honest checkpoints
also have more entries and bytes than their files store, because weights are tied, tensors are expanded and lists are
shared: `common.plain` has the limits, which saving checks as well.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import torch
from torch.serialization import get_safe_globals

from hookline.checkpoint.pickle_walk import CODE, Node, Walk
from hookline.checkpoint.zip_entries import DAMAGED, START, UnreadableError, find_entries, read_entry
from hookline.common.files import regular

#: A file in torch's old format begins with a pickle of this magic number.
LEGACY_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
#: Its pickles: the magic number, the version, the system, the checkpoint, and the keys of the storages that follow.
LEGACY_PICKLES = 5
#: The most dimensions that torch computes with.
DIMENSIONS = 64

#: The bytes of one element, by the class of its storage.
ELEMENT_SIZES = {
    **dict.fromkeys(("ByteStorage", "CharStorage", "BoolStorage", "QUInt8Storage", "QInt8Storage"), 1),
    **dict.fromkeys(("QUInt4x2Storage", "QUInt2x4Storage", "UntypedStorage"), 1),
    **dict.fromkeys(("ShortStorage", "HalfStorage", "BFloat16Storage"), 2),
    **dict.fromkeys(("IntStorage", "FloatStorage", "QInt32Storage"), 4),
    **dict.fromkeys(("LongStorage", "DoubleStorage", "ComplexFloatStorage"), 8),
    "ComplexDoubleStorage": 16,
}
#: Functions that return a view of a storage.
QUANTIZED = "torch._utils._rebuild_qtensor"
VIEWS = {f"torch._utils._rebuild_tensor{version}" for version in ("", "_v2", "_v3")} | {QUANTIZED}
#: Functions that return a tensor of other tensors.
SPARSE = "torch._utils._rebuild_sparse_tensor"
WRAPPERS = {
    *("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state", "torch.nn.parameter.Parameter"),
    SPARSE,
}
#: The function that returns a tensor with attributes, or of a subclass. Its first argument is a function to call.
WITH_STATE = "torch._tensor._rebuild_from_type_v2"
#: Functions whose result takes no more memory than their arguments, if these are not tensors or numbers of bytes.
HARMLESS = {
    *("collections.OrderedDict", "collections.Counter", "builtins.set", "builtins.complex", "_codecs.encode"),
    "builtins.bytearray",
    *("torch.Size", "torch.device", "torch.serialization._get_layout"),
}
#: The argument of a function that has the backward hooks of a tensor. torch writes an empty dict there.
HOOKS = {"_rebuild_tensor_v2": 5, "_rebuild_tensor_v3": 5, "_rebuild_qtensor": 6, "_rebuild_parameter": 2}
REFUSED = {
    "torch._utils._rebuild_meta_tensor_no_storage": "it holds a tensor on the device 'meta', which has no data",
    "torch._utils._rebuild_nested_tensor": "it holds a nested tensor, which a checkpoint cannot store",
    "torch.nested._internal.nested_tensor._rebuild_njt": "it holds a nested tensor, which a checkpoint cannot store",
}


class Scan(Walk):
    """The pickle of a checkpoint."""

    def __init__(self, size: int, stored: dict[bytes, int] | None) -> None:
        super().__init__(size)
        #: True if there is a sparse tensor.
        self.sparse = False
        #: The size of each storage in the file; None in a legacy file, where it is in front of the storage itself.
        self._stored = stored
        self._storages: dict[bytes, Node] = {}
        self._left = size
        self._safe = safe_names()

    def storage(self, items: tuple[Any, ...]) -> Node:
        """Return a storage: its bytes and those of an element. The file must have them."""
        _, kind, key, _, count = items[:5]
        element = ELEMENT_SIZES[kind.facts.rpartition(".")[2]]
        size = count * element
        known = self._storages.get(key)
        if known is None:
            self._left -= size
            if count < 0 or self._left < 0 or (self._stored is not None and self._stored[key.lower()] != size):
                raise UnreadableError("a tensor in it claims other data than the file has")
            known = self._storages[key] = Node("storage", (size, element))
        elif known.facts != (size, element):
            raise UnreadableError(DAMAGED)
        return known

    def result(self, function: Node, arguments: tuple[Any, ...]) -> Node:
        """Return the result of a call. Functions that are not known to be harmless are refused."""
        name = function.facts
        hooks = HOOKS.get(name.removeprefix("torch._utils."), len(arguments))
        if arguments[hooks : hooks + 1] and getattr(arguments[hooks], "kind", None) not in ("result", "dict"):
            raise UnreadableError(DAMAGED)
        if name in VIEWS:
            return self._view(name, arguments)
        if name in WRAPPERS:
            self.sparse = self.sparse or name == SPARSE
            return self._wrapper(arguments)
        if name == WITH_STATE:
            inner, _, given, state = arguments
            return self._wrapper((self.result(inner, given), state))
        if name in REFUSED:
            raise UnreadableError(REFUSED[name])
        if name not in self._safe and not self._is_harmless(name, arguments):
            raise UnreadableError(CODE)
        self.hash(arguments)
        return self.place(arguments, Node("result"))

    def _is_harmless(self, name: str, arguments: tuple[Any, ...]) -> bool:
        """Return whether a call creates no more than its arguments: no list of a tensor's elements, for example."""
        if name not in HARMLESS or (name == "builtins.bytearray" and int in map(type, arguments)):
            return False
        weighed = [self.weigh(each) if isinstance(each, tuple) else each for each in arguments]
        nodes = [each for each in weighed if isinstance(each, Node)]
        return not any(node.kind in ("tensor", "storage") or node.has_tensors for node in nodes)

    def _wrapper(self, items: tuple[Any, ...]) -> Node:
        found = self.place(items, Node("tensor"))
        found.entries = 1
        return found

    def _view(self, name: str, arguments: tuple[Any, ...]) -> Node:
        """Return a tensor. It must not reach beyond the end of its storage, but its elements may share memory."""
        storage, offset, size, stride = arguments[:4]
        available, element = storage.facts
        if name.endswith("_v3"):
            element = getattr(torch, arguments[6].facts.removeprefix("torch.")).itemsize
        found = Node("tensor")
        # Some quantized types have several elements per byte. torch checks their bounds itself.
        found.claimed = _claim(None if name == QUANTIZED else available, element, offset, size, stride)
        return found


@lru_cache(4096)  # the same few shapes occur again and again
def _claim(available: int | None, element: int, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """Return the bytes of a view, and check that it ends within the available bytes."""
    if len(size) > DIMENSIONS or min(offset, *size, *stride, 0) < 0:
        raise UnreadableError(DAMAGED)
    elements, last = 1, offset
    for length, step in zip(size, stride, strict=True):
        elements *= length
        last += (length - 1) * step
    if elements and available is not None and (last + 1) * element > available:
        raise UnreadableError("a tensor in it has more elements than its storage")
    return elements * element


def scan(path: Path) -> Scan:
    """Scan a checkpoint file. Raise UnreadableError with the reason if it cannot be loaded, or not safely."""
    with open(path, "rb", opener=regular) as file:
        beginning = file.read(len(LEGACY_START))
        try:
            if beginning.startswith(START):
                return scan_archive(file)
            if beginning == LEGACY_START:
                return _scan_legacy(beginning + file.read())
        except (OSError, UnreadableError):
            raise
        except Exception as error:  # a broken or hostile file can cause any error here
            raise UnreadableError(DAMAGED) from error
    raise UnreadableError(DAMAGED if beginning.startswith(START[:2]) else "it is not a torch file")


def scan_archive(file: IO[bytes]) -> Scan:
    """Scan an open archive of torch."""
    entries = find_entries(file)
    folder = next(iter(entries)).partition(b"/")[0]
    prefix = folder + b"/data/"
    stored = {name.removeprefix(prefix): entry.size for name, entry in entries.items() if name.startswith(prefix)}
    found = Scan(file.seek(0, os.SEEK_END), stored)
    found.follow(read_entry(file, entries[folder + b"/data.pkl"]))
    return found


def _scan_legacy(data: bytes) -> Scan:
    found, position = Scan(len(data), None), 0
    for _ in range(LEGACY_PICKLES):
        position = found.follow(data, position)
    return found


def safe_names() -> set[str]:
    """Return the names of the classes and functions that the user has declared safe to load."""
    known = get_safe_globals()
    return {each[1] if isinstance(each, tuple) else f"{each.__module__}.{each.__qualname__}" for each in known}

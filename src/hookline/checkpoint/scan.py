"""Scan of a checkpoint before torch loads it: a file that would take far more memory or time than its size is refused.

`weights_only=True` runs no code from a file. Still, a few bytes can describe a list that never ends, a key that takes
years to hash, or a tensor of a terabyte. So the pickle is read first without calling anything, and counted. Honest
checkpoints also have more entries and bytes than their files store, because weights are tied, tensors are expanded and
lists are shared: `common.plain` has the limits, which saving checks as well.

Which functions and classes may be called is torch's decision. A call is refused here only if it is known to take more
memory than its arguments, or to return a tensor that no run can use.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch
from torch.serialization import get_safe_globals

from hookline.checkpoint.pickle_walk import CODE, Call, Global, Pairs, Storage, walk
from hookline.checkpoint.zip_entries import DAMAGED, START, Entry, UnreadableError, find_entries, read_entry
from hookline.common import plain
from hookline.common.files import regular

#: A file in torch's old format begins with a pickle of this magic number.
LEGACY_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
#: Its pickles: the magic number, the version, the system, the checkpoint, and the keys of the storages that follow.
LEGACY_PICKLES = 5
#: The most dimensions that torch computes with.
DIMENSIONS = 64
#: The levels that the arguments of calls add to the depth of an honest file.
ARGUMENTS = 8

#: The bytes of one element, by the class of its storage.
ELEMENT_SIZES = {
    **dict.fromkeys(("ByteStorage", "CharStorage", "BoolStorage", "QUInt8Storage", "QInt8Storage"), 1),
    **dict.fromkeys(("QUInt4x2Storage", "QUInt2x4Storage", "UntypedStorage"), 1),
    **dict.fromkeys(("ShortStorage", "HalfStorage", "BFloat16Storage"), 2),
    **dict.fromkeys(("IntStorage", "FloatStorage", "QInt32Storage"), 4),
    **dict.fromkeys(("LongStorage", "DoubleStorage", "ComplexFloatStorage"), 8),
    "ComplexDoubleStorage": 16,
}
REFUSED = {
    "torch._utils._rebuild_meta_tensor_no_storage": "it holds a tensor on the device 'meta', which has no data",
    "torch._utils._rebuild_nested_tensor": "it holds a nested tensor, which a checkpoint cannot store",
    "torch.nested._internal.nested_tensor._rebuild_njt": "it holds a nested tensor, which a checkpoint cannot store",
}
#: Classes that allocate memory for as many elements as a number says.
ALLOCATING = re.compile(r"torch\.([a-z]+\.)*\w*(Tensor|Storage)")
#: Functions that return a view of a storage. Unknown ones are recognized by their arguments.
VIEWS = re.compile(r"torch\._utils\._rebuild_q?tensor(_v[23])?")
#: The function that returns a tensor without memory. Only a class that provides the data itself can use it.
WITHOUT_MEMORY = "torch._utils._rebuild_wrapper_subclass"
#: The argument of a function that has the backward hooks of a tensor. torch writes an empty dict there.
HOOKS = {"_rebuild_tensor_v2": 5, "_rebuild_tensor_v3": 5, "_rebuild_qtensor": 6, "_rebuild_parameter": 2}
CONTAINERS = frozenset({list, tuple, Pairs, Call, Storage})


class Counts(NamedTuple):
    """The counts of a value."""

    #: The values in it, as often as they are referred to.
    entries: int = 1
    #: The bytes of its tensors, if each had its own memory.
    claimed: int = 0
    #: The levels of lists and dicts inside each other.
    height: int = 0


class Scan:
    """The count of one pickle in a file. A value that occurs several times is visited once."""

    def __init__(self, size: int, stored: dict[bytes, int], length: int) -> None:
        self._size = self._left = size
        #: The size of each storage in the file; empty in a legacy file, where it is in front of the storage itself.
        self._stored = stored
        self._most_entries, self._most_bytes = plain.most_entries(length), plain.most_bytes(size)
        self._hashed = 0
        #: The names of the classes and functions that the user has declared safe to load.
        self._safe = {
            each[1] if isinstance(each, tuple) else f"{each.__module__}.{each.__qualname__}"
            for each in get_safe_globals()
        }
        self._storages: dict[str | bytes, tuple[str, int]] = {}
        #: The counts of each value by id; None while it is being visited.
        self._known: dict[int, Counts | None] = {}
        self._tensors: set[int] = set()

    def visit(self, value: Any, level: int = 1) -> Counts:
        """Return the counts of a value, and refuse it if they are too high."""
        if type(value) not in CONTAINERS:
            return Counts()
        if id(value) in self._known:
            known = self._known[id(value)]
            if known is None:
                raise UnreadableError("a list or dict in it contains itself")
            return known
        if level > plain.DEPTH + ARGUMENTS:
            raise UnreadableError(f"it {plain.TOO_DEEP}")
        self._known[id(value)] = None
        parts, own_level = value, 1
        if type(value) is Pairs:
            self._hash(value[::2], level)
        elif type(value) is Call:
            parts, own_level = (value.arguments, value.entries, *value.states), 0
        elif type(value) is Storage:
            parts = ()
            self._check_storage(value)
        inner = [self.visit(part, level + own_level) for part in parts if type(part) in CONTAINERS]
        entries, claimed, heights = zip(Counts(), *inner, strict=True)
        plain_parts = len(parts) - len(inner)
        counts = Counts(sum(entries) + plain_parts, sum(claimed), max(heights) + own_level)
        if type(value) is Call:
            counts = self._result(value, counts, level)
        self._refuse_excess(counts)
        self._known[id(value)] = counts
        return counts

    def _refuse_excess(self, counts: Counts) -> None:
        if counts.entries > self._most_entries:
            raise UnreadableError(f"it repeats the same lists or dicts, to more than {self._most_entries:,} entries")
        if counts.claimed > self._most_bytes:
            raise UnreadableError(f"its tensors claim {counts.claimed:,} bytes, but the file has only {self._size:,}")
        if counts.height > plain.DEPTH:
            raise UnreadableError(f"it {plain.TOO_DEEP}")

    def _hash(self, keys: Iterable[Any], level: int) -> None:
        """Count the work of hashing keys, which every use of a key causes."""
        self._hashed += sum(self.visit(key, level + 1).entries for key in keys if type(key) in CONTAINERS)
        if self._hashed > self._most_entries:
            raise UnreadableError(f"its keys have more than {self._most_entries:,} entries")

    def _check_storage(self, storage: Storage) -> None:
        """Refuse a storage that the file does not have."""
        kind, key, count = storage.kind, storage.key, storage.count
        if key in self._storages:
            if self._storages[key] != (kind, count):
                raise UnreadableError(DAMAGED)
            return
        self._storages[key] = kind, count
        size = count * _element_size(kind)
        self._left -= size
        stored = self._stored[(key.encode() if isinstance(key, str) else key).lower()] if self._stored else size
        if count < 0 or self._left < 0 or (stored != size and kind.rpartition(".")[2] in ELEMENT_SIZES):
            raise UnreadableError("a tensor in it claims other data than the file has")

    def _result(self, call: Call, counts: Counts, level: int) -> Counts:
        """Return the counts of the result of a call, from the counts of its parts."""
        name, arguments = call.function, call.arguments
        self._hash([arguments], level)  # also a limit for the work below
        if name in REFUSED:
            raise UnreadableError(REFUSED[name])
        if name in self._safe:
            return counts
        flat = [item for argument in arguments for item in (argument if type(argument) is tuple else (argument,))]
        is_tensor = name.startswith("torch.") and any(map(self._is_tensor, flat))
        self._refuse_misuse(call, is_tensor)
        if not is_tensor:
            return counts
        self._tensors.add(id(call))
        if VIEWS.fullmatch(name) or [type(argument) for argument in arguments[:4]] == [Storage, int, tuple, tuple]:
            return Counts(1, _claim_of_view(arguments), 1)
        # The tensor may be converted to a type with larger elements.
        return Counts(1, counts.claimed * max(map(_size_of_dtype, arguments)), 1)

    def _is_tensor(self, value: Any) -> bool:
        """Return whether a value that was counted is memory, or a tensor that a function of torch returns for it."""
        return type(value) is Storage or id(value) in self._tensors

    def _refuse_misuse(self, call: Call, is_tensor: bool) -> None:
        """Refuse a call that is known to take more memory than its arguments, or to return an unusable tensor."""
        name, arguments = call.function, call.arguments
        hooks = HOOKS.get(name.removeprefix("torch._utils."), len(arguments))
        if arguments[hooks : hooks + 1] and type(arguments[hooks]) not in (Call, Pairs):
            raise UnreadableError(DAMAGED)
        refused = ALLOCATING.fullmatch(name) is not None or (is_tensor and call.states != [])
        if name == WITHOUT_MEMORY:
            refused = arguments[0].name not in self._safe
        elif name == "torch.Size" or not name.startswith("torch."):
            # Python would create every element of a tensor, allocate a number of bytes, or encode a text repeatedly.
            direct = [*arguments, *call.states]
            inner = [item for part in direct if type(part) in (list, tuple) for item in part]
            refused = any(map(self._is_tensor, [*direct, *inner])) or any(
                (type(each) is int and each > self._most_bytes)
                or (type(each) is Call and Call in map(type, each.arguments))
                for each in arguments
            )
        if refused:
            raise UnreadableError(CODE)


def _element_size(kind: str) -> int:
    return ELEMENT_SIZES.get(kind.rpartition(".")[2], 1)  # torch knows the others, if they exist


def _size_of_dtype(value: Any) -> int:
    dtype = vars(torch).get(value.name.removeprefix("torch.")) if type(value) is Global else None
    return dtype.itemsize if isinstance(dtype, torch.dtype) else 1


def _claim_of_view(arguments: tuple[Any, ...]) -> int:
    """Return the bytes of a tensor. It must not reach beyond the end of its storage, but its elements may share it."""
    storage, offset, size, stride = arguments[:4]
    element = _element_size(storage.kind)
    # Some quantized types have several elements per byte. torch checks their bounds itself.
    available = None if "x" in storage.kind else storage.count * element
    return _claim(available, max(element, *map(_size_of_dtype, arguments)), offset, size, stride)


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


def scan(source: Path | IO[bytes]) -> None:
    """Raise UnreadableError with the reason if a file cannot be loaded safely. An open file is at its start again."""
    if isinstance(source, Path):
        with open(source, "rb", opener=regular) as file:
            return scan(file)
    beginning = source.read(len(LEGACY_START))
    try:
        if beginning.startswith(START):
            entries = find_entries(source)
            prefix = _folder(entries) + b"/data/"
            stored = {name.removeprefix(prefix): size for name, (_, size) in entries.items() if name.startswith(prefix)}
            pickled = read_pickle(source, entries)
            Scan(source.seek(0, os.SEEK_END), stored, len(pickled)).visit(walk(BytesIO(pickled)))
        elif beginning == LEGACY_START:
            _scan_legacy(BytesIO(beginning + source.read()))
        else:
            raise UnreadableError(DAMAGED if beginning.startswith(START[:2]) else "it is not a torch file")
        source.seek(0)
    except (OSError, UnreadableError):
        raise
    except Exception as error:  # a broken or hostile file can cause any error here
        raise UnreadableError(DAMAGED) from error


def _scan_legacy(file: BytesIO) -> None:
    size = len(file.getbuffer())
    for _ in range(LEGACY_PICKLES):
        Scan(size, {}, size).visit(walk(file))


def read_pickle(file: IO[bytes], entries: dict[bytes, Entry]) -> bytes:
    """Return the pickle in an archive of torch."""
    return read_entry(file, entries[_folder(entries) + b"/data.pkl"])


def _folder(entries: dict[bytes, Entry]) -> bytes:
    return next(iter(entries)).partition(b"/")[0]

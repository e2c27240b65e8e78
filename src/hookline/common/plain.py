"""The data that a checkpoint can store: tensors and plain data, which `weights_only=True` can load.

A checkpoint may have more entries and bytes than it stores, because lists are shared, weights are tied and tensors are
expanded. The limits here are far above all of this. They also hold when a checkpoint is read (`checkpoint.scan`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.serialization import get_safe_globals

from hookline.errors import HookError, StorageError

#: Exactly these types, not their subclasses: an enum may be an int in Python, but a file stores it as a class.
PLAIN = frozenset({str, bytes, int, float, complex, bool, type(None), torch.Size, torch.dtype, torch.device})
#: Types that can be stored with any value.
ANY_VALUE = PLAIN - {int, bytes}
DICTS = frozenset({dict, OrderedDict, Counter})
LISTS = (list, tuple)
LIST_KINDS = frozenset(LISTS)
CONTAINERS = DICTS | LIST_KINDS
#: The types that `is_simple` knows.
SIMPLE = PLAIN | CONTAINERS | {Tensor}
#: A file does not store attributes of these, if they can have any.
WITHOUT_ATTRIBUTES = frozenset({dict, list, tuple, Counter})
#: `weights_only=True` reads an integer of up to 255 bytes.
INT_LIMIT = 1 << 2039
#: The levels of lists and dicts inside each other. Many functions of Python and torch fail at about 500.
DEPTH = 300
TOO_DEEP = f"has more than {DEPTH} levels of lists and dicts inside each other"
#: A checkpoint may have this many entries, however few it stores.
FREE_ENTRIES = 1_000_000
#: Lists and dicts with more entries than this are read one by one, and others together.
LONG = 200
#: The steps of a path that a message shows.
STEPS = 8

Step = Literal["item", "key", "attribute"]


def most_entries(stored: int) -> int:
    """Return the most entries of a checkpoint that stores this many, with shared lists and dicts counted repeatedly."""
    return FREE_ENTRIES + 100 * stored


def most_bytes(stored: int) -> int:
    """Return the most bytes that tensors in this much memory may take if each of them has its own."""
    return (1 << 28) + 100 * stored


def batches(value: Any) -> Iterator[tuple[list[Any], set[type]]]:
    """Yield the values in nested lists and dicts, with keys and attributes, many at a time and with their types.

    A call for each of 300,000 entries would take longer than to write them. Batches of plain values alone are left out.
    What is too deep to be stored is a batch of an unknown type.
    """
    waiting = [(1, [value])]
    while waiting:
        level, values = waiting.pop()
        kinds = set(map(type, values))
        if kinds <= ANY_VALUE:
            continue
        if level > DEPTH:
            yield [value], {object}
            return
        yield values, kinds
        for wanted in (LIST_KINDS, DICTS):
            if kinds.isdisjoint(wanted):
                continue
            found = values if kinds <= wanted else [each for each in values if type(each) in wanted]
            number = sum(map(len, found))
            if number > FREE_ENTRIES:
                found = list({id(each): each for each in found}.values())  # some may be shared
            inner = found if wanted is LIST_KINDS else list(chain.from_iterable(map(_inside, found)))
            if number > LONG * len(found):
                waiting += [(level + 1, list(each)) for each in inner]
            else:
                waiting.append((level + 1, list(chain.from_iterable(inner))))


def _inside(value: dict[Any, Any]) -> list[Any]:
    """Return the keys and values of a dict, and the attributes that a file stores."""
    attributes = [vars(value).values()] if type(value) is OrderedDict and vars(value) else []
    return [value, value.values(), *attributes]


def is_simple(value: Any) -> bool:
    """Return whether a checkpoint can surely store a value. If not, `check_plain` finds out."""
    entries, size = 0, 0
    for values, kinds in batches(value):
        entries += len(values)
        if not kinds <= SIMPLE or entries > FREE_ENTRIES or (bytes in kinds and b"" in values):
            return False
        if int in kinds and not ints_fit(values):
            return False
        tensors = [each for each in values if type(each) is Tensor] if Tensor in kinds else []
        if not all(map(_is_simple_tensor, tensors)):
            return False
        size += sum(each.nbytes for each in tensors)
    return size <= most_bytes(0)


def ints_fit(values: list[Any]) -> bool:
    """Return whether a file can store the ints among the values, of which there is at least one."""
    numbers = [each for each in values if type(each) is int]
    return min(numbers) >= -INT_LIMIT and max(numbers) < INT_LIMIT


def _is_simple_tensor(tensor: Tensor) -> bool:
    """Return whether a tensor is one of many numbers that a file can store, without attributes."""
    return tensor.layout is torch.strided and not (tensor.is_meta or tensor.is_nested or vars(tensor))


def check_plain(value: Any, where: str) -> None:
    """Refuse a value that `weights_only=True` cannot load, before anything is written. The error says where it is."""
    if is_simple(value):
        return
    check = _Check()
    try:
        _, size = check.visit(value, 1)
        if size > most_bytes(0) and size > most_bytes(stored := _bytes_in_memory(check.tensors)):
            raise _RefusedError(
                f"has tensors of {size:,} bytes in {stored:,} bytes of memory, because they are expanded or repeated, "
                "which a checkpoint cannot store; store each of them once"
            )
    except _RefusedError as refused:
        raise HookError(f"{refused.place(where)} {refused.reason}") from None


class _RefusedError(Exception):
    """A value that cannot be stored, and the steps from there to the top, which are added on the way up."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.steps: list[tuple[Step, Any]] = []

    def place(self, where: str) -> str:
        key = ""
        steps = self.steps[::-1]
        for kind, name in steps[:STEPS]:
            if kind == "key":
                key = f"the key {name!r} in "
            else:
                where += f".{name}" if kind == "attribute" else f"[{name!r}]"
        return f"{key}{where}{'...' if len(steps) > STEPS else ''}"


class _Check:
    """One pass over a value. An object that occurs several times is visited once."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        #: The entries and bytes of each container and tensor by id; None while it is being visited.
        self._known: dict[int, tuple[int, int] | None] = {}
        self._stored = 0

    def visit(self, value: Any, level: int) -> tuple[int, int]:
        """Return the entries in a value, and the bytes of its tensors if each had its own memory."""
        kind = type(value)
        if kind in PLAIN:
            _check_value(value, kind)
            return 1, 0
        key = id(value)
        if key in self._known:
            known = self._known[key]
            if known is None:
                raise _RefusedError("contains itself, which a checkpoint cannot store")
            return known
        if level > DEPTH:
            raise _RefusedError(f"{TOO_DEEP}, which a checkpoint cannot store")
        self._known[key] = None
        size = self._add_tensor(value) if kind not in CONTAINERS else 0
        number, to_visit = _parts(value)
        self._stored += number
        entries = 1 + number
        for step, name, inner in to_visit:
            if type(inner) is int and -INT_LIMIT <= inner < INT_LIMIT:  # without a call: most of these parts are ints
                continue
            try:
                more, larger = self.visit(inner, level + 1)
            except _RefusedError as refused:
                refused.steps.append((step, name))
                raise
            entries += more - 1
            size += larger
        if entries > FREE_ENTRIES and entries > most_entries(self._stored):
            raise _RefusedError(
                f"repeats the same lists or dicts, to more than {most_entries(self._stored):,} entries, which a "
                "checkpoint cannot store; store each of them once"
            )
        self._known[key] = entries, size
        return entries, size

    def _add_tensor(self, value: Any) -> int:
        """Refuse a value that is not a tensor, or a tensor that cannot be stored. Return its bytes."""
        if not isinstance(value, Tensor):
            kind = type(value)
            raise _RefusedError(
                f"is a {kind.__module__}.{kind.__qualname__}, which a checkpoint cannot store; "
                "use tensors and plain data (numbers, strings, lists, dicts)"
            )
        self.tensors.append(value)
        return _check_tensor(value)


def _check_value(value: Any, kind: type) -> None:
    """Refuse the values of plain types that `weights_only=True` does not load."""
    if kind is int and not -INT_LIMIT <= value < INT_LIMIT:
        raise _RefusedError(
            f"is an int of {value.bit_length():,} bits, but a checkpoint stores at most 2,039; store it as text"
        )
    if kind is bytes and not value:
        raise _RefusedError("is bytes without content, which a checkpoint cannot store; use text, or None")


def needs_no_visit(values: Collection[Any]) -> bool:
    """Return whether all values are plain and can be stored. For a long list, this is much faster than a visit."""
    kinds = set(map(type, values))
    return kinds <= ANY_VALUE or (kinds == {int} and -INT_LIMIT <= min(values) <= max(values) < INT_LIMIT)


def _parts(value: Any) -> tuple[int, list[tuple[Step, Any, Any]]]:
    """Return how many parts of a value a file stores, and those that must be visited, each with its name."""
    kind = type(value)
    number = 0
    to_visit: list[tuple[Step, Any, Any]] = []
    if kind in DICTS:
        number = 2 * len(value)
        if not set(map(type, value)) <= ANY_VALUE:
            to_visit += [("key", key, key) for key in value]
        to_visit += [("item", key, inner) for key, inner in value.items() if type(inner) not in ANY_VALUE]
    elif kind in LISTS:
        number = len(value)
        if not needs_no_visit(value):
            to_visit += [("item", index, inner) for index, inner in enumerate(value) if type(inner) not in ANY_VALUE]
    if kind not in WITHOUT_ATTRIBUTES and (attributes := getattr(value, "__dict__", None)):
        for name, inner in attributes.items():
            parts = list(inner) if type(inner) is set else [inner]
            number += len(parts)
            to_visit += [("attribute", name, part) for part in parts]
    return number, to_visit


def _check_tensor(value: Tensor) -> int:
    """Refuse a tensor that cannot be stored, and return its bytes."""
    kind = type(value)
    if value.is_nested:
        raise _RefusedError("is a nested tensor, which a checkpoint cannot store; store a list of tensors")
    if value.is_meta:
        raise _RefusedError("is on the device 'meta', so it has no data that a checkpoint could store")
    if kind is not Tensor:
        _check_class(value, kind)
    if value.layout is not torch.strided:
        return 0
    size = value.numel() * value.element_size()
    if size > most_bytes(0) and size > most_bytes(stored := _bytes_in_memory([value])):
        raise _RefusedError(
            f"has {size:,} bytes in {stored:,} bytes of memory, because it is expanded, which a checkpoint cannot "
            "store; store it as it was before that"
        )
    return size


def _check_class(value: Tensor, kind: type) -> None:
    """Refuse a subclass of Tensor that a file cannot store, or only by its name. Parameters are stored as such."""
    if is_lazy(value):
        raise _RefusedError("has no shape yet, so a checkpoint cannot store it; call the model once before it is saved")
    is_parameter = issubclass(kind, nn.Parameter) and kind.__reduce_ex__ is nn.Parameter.__reduce_ex__
    safe = [entry[0] if isinstance(entry, tuple) else entry for entry in get_safe_globals()]
    if not is_parameter and kind not in safe:
        raise _RefusedError(
            f"is a {kind.__module__}.{kind.__qualname__}, a tensor class that a checkpoint cannot store; store a plain "
            "tensor, as .as_subclass(torch.Tensor) returns, or allow the class with "
            "torch.serialization.add_safe_globals"
        )


def _bytes_in_memory(tensors: list[Tensor]) -> int:
    storages = [tensor.untyped_storage() for tensor in tensors if tensor.layout is torch.strided]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def without_numpy(value: Any) -> Any:
    """Return the value with numpy numbers converted to Python numbers.

    Optimizers and schedulers accept numpy numbers as learning rates, so their states may contain them.
    """
    return _without_numpy(value, {}, 1)


def _without_numpy(value: Any, known: dict[int, Any], level: int) -> Any:
    kind = type(value)
    if kind in PLAIN:
        return value
    if isinstance(value, np.generic):
        return value.item()
    if kind not in (dict, list, tuple) or level > DEPTH:
        return value
    if id(value) not in known:
        known[id(value)] = value  # a value that contains itself is not changed, and `check_plain` refuses it
        known[id(value)] = (
            {key: _without_numpy(inner, known, level + 1) for key, inner in value.items()}
            if kind is dict
            else kind(_without_numpy(inner, known, level + 1) for inner in value)
        )
    return known[id(value)]


def refuse_unlike(saved: Any, like: Any, where: str, optional: bool = True) -> None:
    """Refuse a saved state with a value of another kind than `like` has in this place; see `unlike`."""
    odd = unlike(saved, like, where, optional)
    if odd:
        raise StorageError(f"{', '.join(odd)} in the checkpoint is not of the type that a run saves")


def unlike(saved: Any, expected: Any, where: str = "", optional: bool = False) -> list[str]:
    """Return where a saved state has a value of another kind than a state of the same object has now.

    The kinds are numbers, texts, tensors, lists and dicts. If the object has None or nothing in a place now, anything
    fits there. If `optional`, a saved None fits everywhere.

    >>> unlike({"best": "0.5", "rates": [0.1, None], "new": 1}, {"best": 0.1, "rates": [1.0], "last": None})
    ["['best']", "['rates'][1]"]
    """
    if expected is None or (saved is None and optional):
        return []
    both: list[tuple[Any, Any, Any]] = []
    if isinstance(expected, dict) and isinstance(saved, dict):
        both = [(key, saved[key], expected[key]) for key in expected if key in saved]
    elif isinstance(expected, LISTS) and isinstance(saved, LISTS):
        both = [(i, value, expected[min(i, len(expected) - 1)]) for i, value in enumerate(saved)] if expected else []
    elif _kind(saved) is not _kind(expected) or (type(saved) is bool and type(expected) is not bool):
        return [where]
    return [path for key, then, now in both for path in unlike(then, now, f"{where}[{key!r}]", optional)]


def _kind(value: Any) -> type:
    if isinstance(value, (int, float, np.number)) or (isinstance(value, Tensor) and value.numel() == 1):
        return float
    kinds = (str, Tensor, list, dict)
    return next((kind for kind in kinds if isinstance(value, kind)), list if isinstance(value, tuple) else type(value))

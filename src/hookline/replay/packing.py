"""Tensors and plain data as JSON and bytes, without pickle: reading them calls nothing, whoever wrote them.

tensors = []
plain = pack({"step": 3, "weights": tensor}, tensors)      # {"d": [["step", 3], ["weights", {"T": 0}]]}
table, data = write_tensors(tensors)
unpack(plain, read_tensors(table, data))
"""

from __future__ import annotations

import base64
import math
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from hookline.common.sharding import local_part
from hookline.errors import ConfigError

#: The types of tensors that can be packed, by name.
KINDS: dict[str, torch.dtype] = {
    str(kind).removeprefix("torch."): kind
    for kind in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.bool),
        *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    )
}
#: Lists and dicts inside each other beyond this are refused.
DEEPEST = 100


class UnpackableError(ConfigError):
    """Raised for a value that cannot be packed, or a file whose content was not packed."""


def pack(value: Any, tensors: list[torch.Tensor], depth: int = 0) -> Any:
    """Return a value as JSON. Its tensors are added to a list."""
    if depth > DEEPEST:
        raise UnpackableError(f"more than {DEEPEST} levels of lists and dicts")
    if value is None or isinstance(value, (bool, str)) or type(value) is int:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"f": struct.pack("<d", value).hex()}
    if isinstance(value, torch.Tensor):
        part = local_part(value.detach())
        if part.layout != torch.strided or part.is_quantized or part.is_meta or part.dtype not in KINDS.values():
            raise UnpackableError(f"a tensor of the kind {part.dtype}, {part.layout}")
        tensors.append(part.resolve_conj().resolve_neg().cpu().contiguous())
        return {"T": len(tensors) - 1}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return {"n": pack(torch.from_numpy(np.ascontiguousarray(value)), tensors, depth + 1)}
    if type(value) in (dict, OrderedDict, Counter):
        entries = [[pack(each, tensors, depth + 1) for each in pair] for pair in value.items()]
        return {"o" if type(value) is OrderedDict else "d": entries}
    if type(value) is list:
        return [pack(each, tensors, depth + 1) for each in value]
    if type(value) in (tuple, torch.Size):
        return {"t": [pack(each, tensors, depth + 1) for each in value]}
    if type(value) is bytes:
        return {"b": base64.b64encode(value).decode()}
    if type(value) is complex:
        return {"c": [pack(value.real, tensors), pack(value.imag, tensors)]}
    if isinstance(value, torch.dtype):
        return {"y": str(value).removeprefix("torch.")}
    raise UnpackableError(f"a {type(value).__module__}.{type(value).__qualname__}")


def unpack(value: Any, tensors: Sequence[torch.Tensor], depth: int = 0) -> Any:
    """Return the value that was packed. Anything else is refused."""
    if depth > DEEPEST:
        raise UnpackableError(f"more than {DEEPEST} levels of lists and dicts")
    if value is None or isinstance(value, (bool, str, int, float)):
        return value
    if isinstance(value, list):
        return [unpack(each, tensors, depth + 1) for each in value]
    if not isinstance(value, dict) or len(value) != 1:
        raise UnpackableError("an entry that is none")
    ((kind, content),) = value.items()
    try:
        return _READERS[kind](content, tensors, depth + 1)
    except UnpackableError:
        raise
    except (KeyError, ValueError, TypeError, IndexError, struct.error) as error:
        raise UnpackableError(f"an entry '{str(kind)[:20]}' that is none") from error


def _tensor(content: Any, tensors: Sequence[torch.Tensor], depth: int) -> torch.Tensor:
    if type(content) is not int or content < 0:
        raise UnpackableError("a tensor without a number")
    return tensors[content]


def _pairs(content: Any, tensors: Sequence[torch.Tensor], depth: int) -> list[tuple[Any, Any]]:
    return [(unpack(key, tensors, depth), unpack(each, tensors, depth)) for key, each in content]


_READERS: dict[str, Callable[[Any, Sequence[torch.Tensor], int], Any]] = {
    "T": _tensor,
    "n": lambda content, tensors, depth: unpack(content, tensors, depth).numpy(),
    "d": lambda content, tensors, depth: dict(_pairs(content, tensors, depth)),
    "o": lambda content, tensors, depth: OrderedDict(_pairs(content, tensors, depth)),
    "t": lambda content, tensors, depth: tuple(unpack(each, tensors, depth) for each in content),
    "f": lambda content, tensors, depth: struct.unpack("<d", bytes.fromhex(content))[0],
    "b": lambda content, tensors, depth: base64.b64decode(content, validate=True),
    "c": lambda content, tensors, depth: complex(*(unpack(each, tensors, depth) for each in content)),
    "y": lambda content, tensors, depth: KINDS[content],
}


def write_tensors(tensors: Sequence[torch.Tensor]) -> tuple[list[dict[str, Any]], bytes]:
    """Return the type, the shape and the place of each tensor, and the bytes of all of them."""
    table: list[dict[str, Any]] = []
    parts: list[bytes] = []
    begin = 0
    for tensor in tensors:
        data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        kind = str(tensor.dtype).removeprefix("torch.")
        table.append({"kind": kind, "shape": list(tensor.shape), "begin": begin, "end": begin + len(data)})
        parts.append(data)
        begin += len(data)
    return table, b"".join(parts)


def read_tensors(table: Any, data: bytes) -> list[torch.Tensor]:
    """Return the tensors of a table, which may come from anyone."""
    found = []
    for row in table if isinstance(table, list) else [None]:
        if not isinstance(row, dict) or row.get("kind") not in KINDS or not isinstance(row.get("shape"), list):
            raise UnpackableError("a table of tensors that is none")
        shape, kind = row["shape"], KINDS[row["kind"]]
        begin, end = row.get("begin", -1), row.get("end", -1)
        counts = [*shape, begin, end]
        if len(shape) > 64 or not all(type(count) is int and 0 <= count < 1 << 53 for count in counts):
            raise UnpackableError("a table of tensors that is none")
        if not begin <= end <= len(data) or end - begin != math.prod(shape) * kind.itemsize:
            raise UnpackableError("a tensor whose bytes do not fit its shape")
        whole = bytearray(data[begin:end])
        found.append((torch.frombuffer(whole, dtype=kind) if whole else torch.empty(0, dtype=kind)).reshape(shape))
    return found

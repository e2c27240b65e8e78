"""The fingerprint of data: what can be known about it without reading a sample, so that a changed data set is noticed.

A data set that has more, such as files, can have a method or an attribute `fingerprint` of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

from hookline.common.sharding import local_part
from hookline.data.batches import length_of
from hookline.data.sources import SharedList

#: The most bytes of a tensor or an array, and the most entries of a collection, that are looked at. Of longer ones,
#: evenly spaced parts are.
MOST_BYTES, MOST_ENTRIES = 1 << 22, 256
#: Containers inside each other beyond this are not looked into.
DEEPEST = 4


def fingerprint(loader: Iterable[Any]) -> dict[str, Any]:
    """Return the kind of the data, its size, and a hash of what is in memory, as plain data."""
    batches = loader._batches if isinstance(loader, SharedList) else loader
    dataset: Any = getattr(batches, "dataset", batches)
    own = None
    with suppress(Exception):  # code of the user, which may mean something else by the name
        own = dataset.fingerprint() if callable(dataset.fingerprint) else dataset.fingerprint
    samples = None
    with suppress(TypeError, NotImplementedError):
        samples = len(dataset)
    value = dataset if isinstance(dataset, (list, tuple)) else getattr(dataset, "__dict__", {})
    return {
        "type": type(dataset).__name__,
        "samples": samples,
        "batches": length_of(loader),
        "hash": str(own)[:200] if own is not None else hash_of(value),
    }


def hash_of(value: Any) -> str:
    """Return a hash of tensors and plain values in nested data. It is the same in every process."""
    found = blake2b(digest_size=8)
    for part in _parts(value, 0):
        found.update(part + b"\0")
    return found.hexdigest()


def _parts(value: Any, depth: int) -> Iterator[bytes]:
    if isinstance(value, torch.Tensor):
        yield from _tensor(value)
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield f"{value.dtype} {value.shape}".encode()
        flat = value.reshape(-1)
        yield flat[:: _stride(flat.nbytes, MOST_BYTES)].tobytes()
    elif isinstance(value, (Mapping, list, tuple, range)) and depth < DEEPEST:
        entries: Any = list(value.items()) if isinstance(value, Mapping) else value
        yield f"{type(value).__name__} {len(entries)}".encode()
        for entry in entries[:: _stride(len(entries), MOST_ENTRIES)]:
            yield from _parts(entry, depth + 1)
    elif value is None or isinstance(value, (bool, int, float, str, bytes)):
        yield repr(value).encode()
    else:
        yield type(value).__name__.encode()


def _tensor(tensor: torch.Tensor) -> Iterator[bytes]:
    part = local_part(tensor.detach())
    yield f"{part.dtype} {tuple(part.shape)}".encode()
    if part.layout == torch.strided and not part.is_meta and not part.is_quantized and part.device.type == "cpu":
        flat = part.reshape(-1)[:: _stride(part.nbytes, MOST_BYTES)]
        yield flat.resolve_conj().resolve_neg().contiguous().view(torch.uint8).numpy().tobytes()


def _stride(size: int, most: int) -> int:
    return max(1, -(-size // most))

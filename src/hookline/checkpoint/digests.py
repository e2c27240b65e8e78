"""A digest of every tensor in a checkpoint, read without its data: torch's archive has a CRC-32 of each storage.

torch.save writes the CRC-32 of every entry into the directory of the archive. So every checkpoint has a hash per tensor
that sees the order of its elements, at no cost for a run. The seal shows that the file is intact, so they belong to the
data beside them. Two checkpoints whose digests are equal have equal tensors, unless 32 bits collide.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from hookline.checkpoint import folders
from hookline.checkpoint.pickle_walk import Call, Global, Pairs, Storage, walk
from hookline.checkpoint.scan import VIEWS, read_pickle
from hookline.checkpoint.zip_entries import DAMAGED, UnreadableError, find_entries
from hookline.common.files import regular
from hookline.errors import StorageError


class Digest(NamedTuple):
    """A tensor: the CRC-32 of its storage, its type, and where it is in the storage."""

    crc: int
    kind: str
    view: tuple[Any, ...]


def read(path: Path) -> dict[str, Digest]:
    """Return the digest of every tensor of a checkpoint in one file, by its place: `state_dict/0.weight`."""
    return {place: digest for place, digest in read_all(path).items() if isinstance(digest, Digest)}


def read_all(path: Path) -> dict[str, Digest | str]:
    """Return the digest of every tensor of a checkpoint in one file, and the text of every plain value."""
    if folders.is_sharded(path):
        raise StorageError(f"{path} is a sharded checkpoint, whose tensors are in the files of several processes")
    try:
        with open(path, "rb", opener=regular) as file:
            entries = find_entries(file)
            value = walk(BytesIO(read_pickle(file, entries)))
            with zipfile.ZipFile(file) as archive:
                sums = {info.filename.rpartition("/data/")[2]: info.CRC for info in archive.infolist()}
        return {
            place: leaf if isinstance(leaf, str) else Digest(sums[leaf[0]], *leaf[1:])
            for place, leaf in _leaves(value, "")
        }
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnreadableError as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    except Exception as error:  # a broken or hostile file can cause any error here
        raise StorageError(f"{path} cannot be read: {DAMAGED}") from error


def _leaves(value: Any, place: str) -> Iterator[tuple[str, str | tuple[str, str, tuple[Any, ...]]]]:
    """Yield the place of everything in a value: the storage and the view of a tensor, or the text of a plain value."""
    if type(value) is Call and VIEWS.fullmatch(value.function):
        storage, *view = value.arguments
        if type(storage) is Storage:
            key = storage.key if isinstance(storage.key, str) else storage.key.decode()
            yield place, (key, storage.kind, tuple(each for each in view if isinstance(each, (int, tuple))))
            return
    if type(value) is Call:
        yield from _leaves(value.entries, place)
        yield from _leaves([*value.arguments], place)
    elif type(value) is Pairs:
        for name, inner in zip(value[::2], value[1::2], strict=True):
            yield from _leaves(inner, f"{place}/{name}" if place else str(name))
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{place}/{number}")
    else:
        yield place, value.name if type(value) is Global else repr(value)

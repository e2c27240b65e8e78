"""The entries of a zip archive, as torch's reader finds them.

Python's zipfile also accepts archives with other data in front of them, and would then list other entries than torch
reads. So the directory is read here: from the offset that the end of the archive states, and from nowhere else.
"""

from __future__ import annotations

import os
import struct
from typing import IO

DAMAGED = "it was cut short or damaged"
#: The first bytes of an archive with entries.
START = b"PK\x03\x04"
_LOCAL = struct.Struct("<26x2H")
_CENTRAL = struct.Struct("<4s6xH8x2L3H8xL")
_END = struct.Struct("<4s6xH2LH")
_LOCATOR = struct.Struct("<4s4xQ4x")
_END_64 = struct.Struct("<4s28x3Q")
_LONGEST_COMMENT = 0xFFFF
_IN_EXTRA_FIELD = 0xFFFFFFFF


class UnreadableError(ValueError):
    """A file cannot be read as a checkpoint. The message is the reason."""


#: The offset of the header of an entry, and the size of its data.
Entry = tuple[int, int]


def find_entries(file: IO[bytes]) -> dict[bytes, Entry]:
    """Return the entries of an archive in the order of its directory, by name in lower case: torch ignores the case.

    torch compresses nothing and writes one entry after the other. Any other archive is refused: entries that are
    compressed, overlap or have the same name can take far more memory than the file.
    """
    directory, start, count = _read_directory(file)
    found: dict[bytes, Entry] = {}
    position = 0
    for _ in range(count):
        signature, method, packed, size, name_length, extra_length, comment, offset = _CENTRAL.unpack_from(
            directory, position
        )
        if signature != b"PK\x01\x02":
            raise UnreadableError(DAMAGED)
        name_start = position + _CENTRAL.size
        extra_start = name_start + name_length
        name = directory[name_start:extra_start].lower()
        position = extra_start + extra_length + comment
        if _IN_EXTRA_FIELD in (size, packed, offset):
            size, packed, offset = _read_large(
                directory[extra_start : extra_start + extra_length], size, packed, offset
            )
        if method or packed != size:
            raise UnreadableError("its archive is compressed, which torch never does")
        found[name] = (offset, size)
    _refuse_overlaps(found, start)
    if len(found) != count:
        raise UnreadableError("its archive has two entries with the same name")
    return found


def read_entry(file: IO[bytes], entry: Entry) -> bytes:
    """Return the data of an entry."""
    offset, size = entry
    file.seek(offset)
    name_length, extra_length = _LOCAL.unpack(file.read(_LOCAL.size))
    file.seek(name_length + extra_length, os.SEEK_CUR)
    return file.read(size)


def _read_directory(file: IO[bytes]) -> tuple[bytes, int, int]:
    """Return the directory of an archive, its offset, and the number of its entries."""
    size = file.seek(0, os.SEEK_END)
    tail_start = file.seek(max(size - _LONGEST_COMMENT - _END.size, 0))
    tail = file.read()
    found = tail.rfind(b"PK\x05\x06", 0, max(len(tail) - _END.size + 4, 0))
    if found < 0:
        raise UnreadableError(DAMAGED)
    _, count, length, offset, _ = _END.unpack_from(tail, found)
    locator = tail_start + found - _LOCATOR.size
    if locator >= 0:
        file.seek(locator)
        signature, end_64 = _LOCATOR.unpack(file.read(_LOCATOR.size))
        if signature == b"PK\x06\x07":
            file.seek(end_64)
            signature, count, length, offset = _END_64.unpack(file.read(_END_64.size))
            if signature != b"PK\x06\x06":
                raise UnreadableError(DAMAGED)
    if offset + length > size:
        raise UnreadableError(DAMAGED)
    file.seek(offset)
    return file.read(length), offset, count


def _read_large(extra: bytes, *values: int) -> tuple[int, ...]:
    """Return sizes and offset of an entry; those that do not fit into 32 bits are in an extra field."""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, position)
        position += 4
        if kind == 1:
            large = iter(struct.unpack_from(f"<{length // 8}Q", extra, position))
            return tuple(next(large) if value == _IN_EXTRA_FIELD else value for value in values)
        position += length
    return values


def _refuse_overlaps(entries: dict[bytes, Entry], end: int) -> None:
    free = 0
    for offset, size in sorted(entries.values()):
        if offset + _LOCAL.size + size > end:
            raise UnreadableError("its archive claims more data than the file has")
        if offset < free:
            raise UnreadableError("the entries of its archive overlap")
        free = offset + _LOCAL.size + size

"""Reading TensorBoard event files: scalars and images, without TensorBoard.

A file is a sequence of records in TensorFlow's frame (length, checksum, data, checksum), and the data is a protobuf
message. Only the few fields that a page shows are read, by their numbers in the public message definitions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hookline.common.files import regular

#: A record that says it is longer than this is not one.
LONGEST = 256 << 20
#: The numbers of the fields.
_STEP, _SUMMARY = 2, 5
_VALUE = 1
_TAG, _SIMPLE, _IMAGE, _TENSOR = 1, 2, 4, 8
_ENCODED = 4
_DTYPE, _CONTENT, _FLOATS, _DOUBLES, _INTS, _STRINGS, _LONGS = 1, 4, 5, 6, 7, 8, 10
#: The types of a tensor that can hold one number, with their formats: float, double, int32, int64.
_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class Event:
    """One value of an event file: a number, or the bytes of an image file."""

    step: int
    tag: str
    number: float | None = None
    image: bytes | None = None


class _NotAMessageError(ValueError):
    """Raised inside this module for bytes that are not a protobuf message."""


def read_events(path: Path) -> Iterator[Event]:
    """Yield the numbers and images of a file. Stop where a record is cut off, damaged or empty.

    A run may still write it. After a crash of the machine, a file may end with zeros.
    """
    with open(path, "rb", opener=regular) as file:
        while len(head := file.read(12)) == 12:
            (size,) = struct.unpack_from("<Q", head)
            if not 0 < size <= LONGEST or len(data := file.read(size)) < size or len(file.read(4)) < 4:
                return
            try:
                yield from _events_of(data)
            except _NotAMessageError:
                return


def _events_of(data: bytes) -> Iterator[Event]:
    step, summaries = 0, []
    for number, value in _fields(data):
        if number == _STEP and isinstance(value, int):
            step = value if value < 1 << 63 else 0
        elif number == _SUMMARY and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in _fields(summary):
            if number == _VALUE and isinstance(value, bytes):
                yield from _event_of(value, step)


def _event_of(data: bytes, step: int) -> Iterator[Event]:
    found = dict(_fields(data))
    tag = found.get(_TAG, b"")
    if not isinstance(tag, bytes):
        return
    name = tag.decode("utf-8", "replace")
    if isinstance(simple := found.get(_SIMPLE), bytes) and len(simple) == 4:
        yield Event(step, name, number=struct.unpack("<f", simple)[0])
    elif isinstance(image := found.get(_IMAGE), bytes):
        if isinstance(encoded := dict(_fields(image)).get(_ENCODED), bytes):
            yield Event(step, name, image=encoded)
    elif isinstance(tensor := found.get(_TENSOR), bytes):
        yield from _tensor_of(tensor, name, step)


def _tensor_of(data: bytes, name: str, step: int) -> Iterator[Event]:
    """Yield the one number of a tensor, or the images of a tensor of strings: its width, its height, then each file."""
    fields = list(_fields(data))
    single = {number: value for number, value in fields if number != _STRINGS}
    strings = [value for number, value in fields if number == _STRINGS and isinstance(value, bytes)]
    if len(strings) > 2 and all(each.isdigit() for each in strings[:2]):
        yield from (Event(step, name, image=each) for each in strings[2:])
        return
    kind = _FORMATS.get(single.get(_DTYPE, 0))
    if kind is None:
        return
    size = struct.calcsize(kind)
    for field in (_CONTENT, _FLOATS, _DOUBLES):
        if isinstance(content := single.get(field), bytes) and len(content) == size:
            yield Event(step, name, number=float(struct.unpack(kind, content)[0]))
            return
    for field in (_INTS, _LONGS):
        whole = single.get(field)
        if isinstance(whole, bytes) and whole:
            whole = _varint(whole, 0)[0]
        if isinstance(whole, int):
            yield Event(step, name, number=float(whole - (1 << 64) if whole >> 63 else whole))
            return


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each field: an int, or bytes."""
    position, end = 0, len(data)
    while position < end:
        key, position = _varint(data, position)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if kind == _BYTES:
            size, position = _varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise _NotAMessageError
        if position + size > end:
            raise _NotAMessageError
        yield number, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise _NotAMessageError

"""The bits of the loss of every iteration: `loss_bits.bin` in the folder of a run.

The file has 8 bytes per finished iteration, without a header: the loss of iteration n is the little-endian float64 at
offset `8 * (n - 1)`. Two values that are no result of a computation stand for a missing loss: `NO_LOSS` and `UNKNOWN`.
The main process writes the losses of up to 100 iterations at once, when it checks them. A resumed run cuts the file to
the position of its checkpoint. So two runs are equal as long as these bytes are.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from hookline.common.files import owned, regular

log = logging.getLogger("hookline")

NAME = "loss_bits.bin"
#: The bytes of one loss.
SIZE = 8
_NO_LOSS, _UNKNOWN = 0x7FF8_0000_0000_0001, 0x7FF8_0000_0000_0002
#: The loss of an iteration without one: it was skipped, or its step returns none.
NO_LOSS: float = struct.unpack("<d", struct.pack("<Q", _NO_LOSS))[0]
#: The loss of an iteration that was not recorded: a run that was resumed from another folder begins with these.
UNKNOWN: float = struct.unpack("<d", struct.pack("<Q", _UNKNOWN))[0]
#: The most iterations whose bits are filled in or read at once.
_CHUNK = 1 << 16


def open_at(folder: Path, position: int) -> int | None:
    """Open the file of a run that begins after `position` iterations. Without it, a run continues: return None then.

    Later losses are cut off, because the run computes them again. Missing ones are filled with `UNKNOWN`.
    """
    descriptor = None
    try:
        descriptor = owned(str(folder / NAME), os.O_RDWR | os.O_CREAT)
        has = min(os.fstat(descriptor).st_size // SIZE, position)
        os.ftruncate(descriptor, has * SIZE)
        while has < position:
            number = min(position - has, _CHUNK)
            os.pwrite(descriptor, struct.pack("<Q", _UNKNOWN) * number, has * SIZE)
            has += number
    except OSError as error:
        report(error)
        if descriptor is not None:
            os.close(descriptor)
        return None
    return descriptor


def report(error: OSError) -> None:
    """Report that the losses of a run are not recorded."""
    log.warning("%s cannot be written: %s; the run continues without it", NAME, error.strerror or error)


def read(folder: Path, first: int = 1, last: int | None = None) -> list[int]:
    """Return the bits of the losses of iterations `first` to `last`, as far as the file has them; empty without one."""
    try:
        with open(folder / NAME, "rb", opener=regular) as file:
            known = os.fstat(file.fileno()).st_size // SIZE
            file.seek((first - 1) * SIZE)
            number = max(0, (known if last is None else min(known, last)) - first + 1)
            data = file.read(number * SIZE)
    except OSError:
        return []
    return list(struct.unpack(f"<{len(data) // SIZE}Q", data[: len(data) // SIZE * SIZE]))


def as_loss(bits: int) -> float | None:
    """Return the loss with these bits; None if the iteration has none, or if it was not recorded."""
    loss: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return None if bits in (_NO_LOSS, _UNKNOWN) else loss


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Return the index of the first loss that differs; None if all that both have are equal.

    A loss that one of them does not know is no difference.
    """
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b and _UNKNOWN not in (a, b):
            return index
    return None

"""The seal at the end of a checkpoint: a note about it and its SHA-256, in the comment that a zip archive may have.

torch writes zip archives, and neither it nor zip tools mind a comment; so one file holds a checkpoint and what proves
it, wherever it is moved to. The hash is over all bytes before it, the note included:

    archive ... {"step": 120, "validations": 2, "complete": true} sha256:<64 hex digits>
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

# The record that ends a zip archive, without the comment whose length is its last two bytes.
END_OF_ARCHIVE = b"PK\x05\x06"
END_LENGTH = 22
HASH_LENGTH = 64
# More than any seal has.
TAIL = 4096
PATTERN = re.compile(rb"(\{[^{}]*\}) sha256:([0-9a-f]{64})")
CHUNK = 1 << 22


@dataclass(frozen=True)
class Note:
    """What a seal says: where in its run the checkpoint stands, and whether a run can go on from it."""

    step: int = 0
    validations: int = 0
    complete: bool = False

    @property
    def order(self) -> tuple[int, int]:
        """Later in the run is greater; the clock plays no part."""
        return (self.step, self.validations)


class SealingFile:
    """A file for `torch.save` to write: it hashes on the way, and ends with a seal."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._held_back = b""
        #: What went wrong when something was written: torch hides it behind an error of its own.
        self.failure: BaseException | None = None
        #: Nothing more is written. torch's writer writes its end also after a failure, when it is destroyed, and an
        #: error there would end the process.
        self.abandoned = False

    def write(self, data: Any) -> int:
        """Hash and write, except for the last bytes: they may be the end of the archive, where the seal goes."""
        if not self.abandoned:
            try:
                self._write(data)
            except BaseException as error:  # also one that a signal raises in here
                self.failure, self.abandoned = error, True
                raise
        return len(data)

    def _write(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        if len(view) < END_LENGTH:
            view = memoryview(self._held_back + bytes(view))
        else:
            self._put(self._held_back)
        self._put(view[:-END_LENGTH])
        self._held_back = bytes(view[-END_LENGTH:])

    def _put(self, data: Any) -> None:
        self._hash.update(data)
        self._file.write(data)

    def flush(self) -> None:
        """Asked for by torch; what is held back stays."""

    def seal(self, note: Note) -> str:
        """Write the end of the archive with the seal; gives the SHA-256 of the whole file."""
        end = self._held_back
        assert (end[:4], end[-2:]) == (END_OF_ARCHIVE, b"\0\0"), "torch ends an archive without a comment"
        comment = json.dumps(asdict(note)).encode() + b" sha256:"
        self._put(end[:-2] + (len(comment) + HASH_LENGTH).to_bytes(2, "little") + comment)
        self._put(self._hash.hexdigest().encode())
        return self._hash.hexdigest()


def read_note(path: Path) -> Note | None:
    """The note of a checkpoint, quickly and without a look at the rest; None where there is no seal."""
    found = _seal(path)
    if found is None:
        return None
    try:
        said = json.loads(found[1])
        step, validations, complete = said["step"], said["validations"], said["complete"]
    except (ValueError, KeyError):
        return None
    known = isinstance(step, int) and isinstance(validations, int) and isinstance(complete, bool)
    return Note(step, validations, complete) if known else None


def damage(path: Path) -> str:
    """What is wrong with a checkpoint; empty when every byte of it is as it was written."""
    try:
        found = _seal(path)
        if found is None or read_note(path) is None:
            return "it does not end with a seal, so it was cut short, damaged, or written by something else"
        return "" if _hash_of(path, without=HASH_LENGTH) == found[2].decode() else "its bytes do not match its SHA-256"
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"


def digest(path: Path) -> str:
    """The SHA-256 of a whole file."""
    return _hash_of(path, without=0)


def _seal(path: Path) -> re.Match[bytes] | None:
    with open(path, "rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - TAIL, 0))
        tail = file.read()
    at = tail.rfind(END_OF_ARCHIVE)
    return PATTERN.fullmatch(tail[at + END_LENGTH :]) if at >= 0 else None


def _hash_of(path: Path, without: int) -> str:
    found = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        left = file.seek(0, os.SEEK_END) - without
        file.seek(0)
        while left > 0 and (part := file.read(min(left, CHUNK))):
            found.update(part)
            left -= len(part)
    return found.hexdigest()

"""The seal at the end of a checkpoint: a note and a SHA-256, stored in the comment field of the zip archive.

torch writes zip archives, and neither torch nor zip tools mind a comment. One file therefore holds both the checkpoint
and the proof that it is intact, wherever it is moved. The hash covers all bytes before it, including the note:

    archive ... {"step": 120, "validations": 2, "complete": true} sha256:<64 hex digits>

A sharded checkpoint is a folder. Its seal is the seal of the one file in it that has the hashes of all others.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hookline.checkpoint import folders
from hookline.checkpoint.hashing import LARGE, Hash
from hookline.common.files import regular

# The record that ends a zip archive. Its last two bytes are the length of the comment that follows.
END_OF_ARCHIVE = b"PK\x05\x06"
END_LENGTH = 22
HASH_LENGTH = 64
# Longer than any seal.
TAIL_LENGTH = 4096
PATTERN = re.compile(rb"(\{[^{}]*\}) sha256:([0-9a-f]{64})")
CHUNK = 1 << 22
# Data of fewer bytes is collected before it is hashed and written.
PIECE = 1 << 15


@dataclass(frozen=True)
class Note:
    """The note in a seal: the checkpoint's position in its run, and whether a run can resume from it."""

    step: int = 0
    validations: int = 0
    complete: bool = False

    @property
    def order(self) -> tuple[int, int]:
        """Return a sort key that grows during the run and does not depend on the clock."""
        return (self.step, self.validations)


class SealingFile:
    """A file for `torch.save` that hashes the data while it is written and ends with a seal.

    Args:
        file: The file to write.
        lasting: The addresses of memory that stays unchanged until `seal` or `abandon` returns. The hash of large data
            there is not waited for before that. torch frees or reuses all other memory, such as the pickle's memory.
    """

    def __init__(self, file: IO[bytes], lasting: Container[int] = ()) -> None:
        self._file = file
        self._lasting = lasting
        self._hash = Hash()
        self._written = 0
        self._held_back = bytearray()
        #: The error of a failed write, because torch replaces it with another one.
        self.failure: BaseException | None = None
        #: If true, nothing more is written. torch's writer writes the end of the archive even after a failure, when it
        #: is destroyed, and an error at that moment would end the process.
        self.abandoned = False

    def write(self, data: Any) -> int:
        """Hash and write the data, but hold back the last bytes: the seal goes there if they end the archive.

        torch writes many small pieces, which are collected.
        """
        size = len(data)
        if not self.abandoned:
            try:
                if size < PIECE:
                    self._held_back += data
                    if len(self._held_back) >= 2 * PIECE:
                        self._put(self._held_back[:-END_LENGTH])
                        del self._held_back[:-END_LENGTH]
                else:
                    self._put(self._held_back)
                    self._put(memoryview(data)[:-END_LENGTH])
                    self._held_back = bytearray(memoryview(data)[-END_LENGTH:])
            except BaseException as error:  # including one that a signal handler raises here
                self.failure, self.abandoned = error, True
                raise
        return size

    def _put(self, data: Any) -> None:
        self._hash.update(data)
        try:
            self._file.write(data)
            if len(data) >= LARGE:
                self._start_writeback(len(data))
        finally:
            if len(data) >= LARGE and _address_of(data) not in self._lasting:
                self._hash.wait()
        self._written += len(data)

    def _start_writeback(self, size: int) -> None:
        """Let the system write these bytes to the disk now, so that fsync has less to wait for."""
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # it is only a hint, and not every file is on a disk
                os.posix_fadvise(self._file.fileno(), self._written, size, os.POSIX_FADV_DONTNEED)

    def abandon(self) -> None:
        """Write nothing more, and stop using the data."""
        self.abandoned = True
        self._hash.finish()

    def flush(self) -> None:
        """Do nothing; torch requires this method, and the last bytes stay held back."""

    def seal(self, note: Note) -> str:
        """Write the end of the archive with the seal, and return the SHA-256 of the whole file."""
        end = bytes(self._held_back)
        assert (end[-END_LENGTH:][:4], end[-2:]) == (END_OF_ARCHIVE, b"\0\0"), "torch ends an archive without a comment"
        comment = json.dumps(vars(note)).encode() + b" sha256:"
        self._put(end[:-2] + (len(comment) + HASH_LENGTH).to_bytes(2, "little") + comment)
        self._put(self._hash.finish().encode())
        return self._hash.finish()


def _address_of(data: Any) -> int:
    import numpy as np  # reading a seal does not need it

    address: int = np.frombuffer(data, np.uint8).ctypes.data
    return address


def read_note(path: Path) -> Note | None:
    """Return the note of a checkpoint, reading only the end of the file; None if there is no valid seal."""
    found = _find_seal(path)
    return _note_in(found) if found is not None else None


def _note_in(found: re.Match[bytes]) -> Note | None:
    try:
        note = json.loads(found[1])
        step, validations, complete = note["step"], note["validations"], note["complete"]
    except (ValueError, KeyError):
        return None
    valid = isinstance(step, int) and isinstance(validations, int) and isinstance(complete, bool)
    return Note(step, validations, complete) if valid else None


def damage(path: Path) -> str:
    """Describe the damage to a checkpoint; empty if every byte is as it was written."""
    if folders.is_foreign(path):
        return folders.FOREIGN
    try:
        found = _find_seal(path)
        if found is None or _note_in(found) is None:
            return "it does not end with a seal, so it was cut short, damaged, or written by something else"
        if _hash_of(file := folders.sealed_file(path), without=HASH_LENGTH) != found[2].decode():
            return "its bytes do not match its SHA-256"
        if file == path:
            return ""
        from hookline.checkpoint import shards  # it imports torch, which other checkpoints do not need here

        return shards.find_damage(path)
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"


def read_hash(path: Path) -> str:
    """Return the SHA-256 in the seal of a checkpoint, reading only the end of the file; empty without a valid seal."""
    found = _find_seal(path)
    return found[2].decode() if found is not None else ""


def digest(path: Path) -> str:
    """Return the SHA-256 of a whole file, or of the sealed file in a folder."""
    return _hash_of(folders.sealed_file(path), without=0)


def _find_seal(path: Path) -> re.Match[bytes] | None:
    file_with_seal = folders.sealed_file(path)
    if file_with_seal != path and not file_with_seal.is_file():
        return None
    with open(file_with_seal, "rb", opener=regular) as file:
        file.seek(max(file.seek(0, os.SEEK_END) - TAIL_LENGTH, 0))
        tail = file.read()
    position = tail.rfind(END_OF_ARCHIVE)
    return PATTERN.fullmatch(tail[position + END_LENGTH :]) if position >= 0 else None


def _hash_of(path: Path, without: int) -> str:
    found = hashlib.sha256()
    with open(path, "rb", buffering=0, opener=regular) as file:
        left = file.seek(0, os.SEEK_END) - without
        file.seek(0)
        while left > 0 and (part := file.read(min(left, CHUNK))):
            found.update(part)
            left -= len(part)
    return found.hexdigest()

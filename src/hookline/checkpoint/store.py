"""How a checkpoint gets to the disk and back, so that at every moment the old or the new one is there, whole.

Written to a temporary file in the same folder, hashed on the way, fsync, rename, fsync of the folder, then read again
and compared. `last_checkpoint` is JSON with a name relative to its folder, so a folder that was moved still resumes.
"""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

import torch

from hookline.checkpoint.names import NAMES
from hookline.checkpoint.seal import Note, SealingFile, damage, read_note
from hookline.errors import StorageError

POINTER = "last_checkpoint"
#: The ending of a file that is being written; after a kill such a file may be left, and is swept.
PARTIAL = ".partial"


# -- writing


def write(checkpoint: Mapping[str, Any], path: Path, note: Note) -> str:
    """Write a checkpoint so that it is there whole or not at all, and verify it; gives the SHA-256 of the file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error
    with replacing(path) as file:
        sealing = SealingFile(file)
        try:
            torch.save(dict(checkpoint), cast("IO[bytes]", sealing))
        except BaseException:
            sealing.abandoned = True
            if sealing.failure is not None:
                raise sealing.failure from None
            raise
        sha256 = sealing.seal(note)
    if problem := damage(path):
        raise StorageError(f"{path} was written, and read back it is damaged: {problem}; look at the disk")
    return sha256


def point_to(path: Path, folder: Path, sha256: str, step: int) -> None:
    """Make a checkpoint the one that `last_checkpoint` of its folder names."""
    record = {"name": os.path.relpath(path, folder), "sha256": sha256, "step": step}
    with replacing(folder / POINTER) as file:
        file.write(json.dumps(record).encode())


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes the place of `path` when it is complete and on the disk; a failure leaves nothing."""
    temporary = path.with_name(f".{path.name}{PARTIAL}")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    with suppress(OSError):  # some systems and file systems cannot do this to a folder, and the file is there
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def sweep(folder: Path) -> None:
    """Remove what a kill in the middle of a save has left."""
    for leftover in folder.glob(f".*{PARTIAL}"):
        leftover.unlink(missing_ok=True)


# -- reading


def read(path: Path, *, sealed: bool, verified: bool = False) -> dict[str, Any]:
    """A checkpoint from the disk; nothing in the file is run.

    A damaged one is refused. What hookline has not written has no seal, and is taken unless `sealed` asks for one.
    """
    if not path.is_file():
        raise StorageError(f"there is no checkpoint {path}")
    own = sealed or read_note(path) is not None
    if own and not verified and (problem := damage(path)):
        raise StorageError(f"{path} cannot be used: {problem}")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a broken or hostile file makes the reader stumble over
        raise StorageError(f"{path} cannot be read as a checkpoint: {_why_unreadable(path, error)}") from error
    if not isinstance(checkpoint, dict):
        raise StorageError(f"{path} holds a {type(checkpoint).__name__}, not a checkpoint")
    if not own and _is_ours(checkpoint):
        raise StorageError(f"{path} cannot be used: it has lost its seal, so it is damaged")
    return checkpoint


def _why_unreadable(path: Path, error: Exception) -> str:
    """In words of our own: torch's advise to run what is in the file."""
    with open(path, "rb") as file:
        is_archive = file.read(2) == b"PK"
    if isinstance(error, pickle.UnpicklingError):
        return "it holds more than tensors and plain data, and nothing in a file is ever run"
    return "it was cut short or damaged" if is_archive else "it is no file of torch"


def _is_ours(checkpoint: Mapping[str, Any]) -> bool:
    meta = checkpoint.get("meta")
    return isinstance(meta, Mapping) and "hookline" in meta


def newest_intact(folders: Iterable[Path], warn: Callable[[str], None], names: re.Pattern[str] = NAMES) -> Path | None:
    """The checkpoint to resume from: of those that are intact, the latest by step; None where there is none at all.

    Every one that had to be passed over is said. With some but none intact, the resume is refused. A file without a
    seal counts as one of them by its name; others are none of ours.
    """
    passed_over: list[str] = []
    incomplete: list[str] = []
    pointers: list[str] = []
    found: list[tuple[Note, Path]] = []
    for folder in folders:
        if problem := pointer_problem(folder):
            passed_over.append(problem)
        elif (folder / POINTER).exists():
            pointers.append(f"{folder / POINTER} names a file that cannot be used")
        for path in sorted(folder.glob("*.pth")):
            note = read_note(path) if path.is_file() else None
            if note is not None and note.complete:
                found.append((note, path))
            elif note is None and names.fullmatch(path.name) and (reason := _why_not_foreign(path)):
                passed_over.append(f"{path}: {reason}")
            elif note is not None:
                incomplete.append(f"{path}: it was saved without its optimizer or schedulers")
    for _, path in sorted(found, key=lambda each: each[0].order, reverse=True):
        if not (problem := damage(path)):
            for each in passed_over:
                warn(each)
            return path
        passed_over.append(f"{path} is damaged: {problem}")
    if reasons := passed_over + incomplete or pointers:
        raise StorageError(
            "resume was asked for, and there is no intact checkpoint to go on from:\n  " + "\n  ".join(reasons)
        )
    return None


def pointer_problem(folder: Path) -> str:
    """What is wrong with the pointer of a folder; empty when it is right, or not there."""
    pointer = folder / POINTER
    if not os.path.lexists(pointer):
        return ""
    try:
        with open(pointer, "rb") as file:
            said = file.read(1 << 16)
        if os.path.isfile(said.strip()):  # as other programs write it: the path alone
            return ""
        record = json.loads(said)
        path = folder / str(record["name"])
        if not path.resolve().is_relative_to(folder.resolve()):
            return f"{pointer} points out of its folder, to {str(record['name'])!r}"
        return "" if path.is_file() else f"{pointer} names {path.name}, which is not there"
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        return f"{pointer} cannot be read: {type(error).__name__}: {error}"


def _why_not_foreign(path: Path) -> str:
    """Why a file without a seal counts as a broken checkpoint; empty for one that something else has written."""
    try:
        read(path, sealed=False)
    except StorageError as error:
        return str(error).removeprefix(f"{path} ")
    return ""

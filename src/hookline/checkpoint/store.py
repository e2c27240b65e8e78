"""How a checkpoint gets to the disk and back: a temporary file in the same folder, fsync, rename, then the pointer.

At every moment either the old or the new file is there, whole. `last_checkpoint` is JSON with a name relative to its
folder, so a folder that was moved still resumes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch

from hookline.errors import StorageError

POINTER = "last_checkpoint"


def write(checkpoint: Mapping[str, Any], path: Path) -> str:
    """Write a checkpoint so that it is there whole or not at all; gives its SHA-256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        try:
            torch.save(dict(checkpoint), file)
        except RuntimeError as error:  # how torch's writer says that the disk is full
            raise StorageError(f"{path} cannot be written: {str(error).splitlines()[0]}") from error
    return digest(path)


def point_to(path: Path, folder: Path, sha256: str, step: int) -> None:
    """Make a checkpoint the one that a resume of this folder goes on from."""
    record = {"name": os.path.relpath(path, folder), "sha256": sha256, "step": step}
    with replacing(folder / POINTER) as file:
        file.write(json.dumps(record).encode())


def last(folder: Path) -> Path | None:
    """The checkpoint to resume from; None where the folder has none."""
    pointer = folder / POINTER
    if not pointer.is_file():
        if others := sorted(path.name for path in folder.glob("*.pth")):
            raise StorageError(
                f"{folder} has checkpoints ({', '.join(others[:4])}) but no {POINTER} that says which is the last; "
                "resume from one by its path"
            )
        return None
    try:
        record = json.loads(pointer.read_text())
        name, expected = str(record["name"]), str(record["sha256"])
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{pointer} cannot be read: {error}; resume from a file by its path") from error
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise StorageError(f"{pointer} points out of its folder, to {name}; resume from a file by its path")
    if not path.is_file():
        raise StorageError(f"{pointer} names {name}, which is not there; resume from a file by its path")
    if digest(path) != expected:
        raise StorageError(f"{path} is damaged: its SHA-256 is not the one that {pointer} noted when it was saved")
    return path


def read(path: Path) -> dict[str, Any]:
    """A checkpoint from the disk; nothing in the file is run."""
    if not path.is_file():
        raise StorageError(f"there is no checkpoint {path}")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a broken or hostile file makes the reader stumble over
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise StorageError(f"{path} cannot be read as a checkpoint: {reason}") from error
    if not isinstance(checkpoint, dict):
        raise StorageError(f"{path} holds a {type(checkpoint).__name__}, not a checkpoint")
    return checkpoint


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes the place of `path` when it is complete and on the disk; a failure leaves nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
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
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

"""Checkpoints that are folders: whole or not there, numbered, and found again.

accelerate writes several files. They go into a folder beside its place, are hashed and put on the disk, and get a seal:
`trainer_state.pth`, a sealed file of the core with the hash of each of them in it. Then the folder is renamed. So what
is called `checkpoint_5` is complete, and what a kill, a full disk or a copy has spoiled is recognised and passed over.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hookline.checkpoint import seal, store
from hookline.errors import StorageError

SEAL = "trainer_state.pth"
NAME = re.compile(r"checkpoint_([0-9]+)")
MODEL = re.compile(r"model_epoch_([0-9]+)_step_([0-9]+)")
#: Endings of folders that are being written or removed; after a kill they may be left, and are swept.
PARTIAL, REMOVED = ".partial", ".removed"


def number_of(folder: Path) -> int:
    """The number of a checkpoint; -1 for a folder with a name of its own."""
    match = NAME.fullmatch(folder.name)
    return int(match[1]) if match else -1


def checkpoints(parent: Path) -> list[Path]:
    """The numbered checkpoints in a folder, the oldest first."""
    found = [path for path in parent.glob("checkpoint_*") if path.is_dir() and number_of(path) >= 0]
    return sorted(found, key=number_of)


def models(parent: Path, after: tuple[int, int] | None) -> list[Path]:
    """The saved models in a folder: all, or those written after a training had come to an epoch and a batch of it.

    What a step saves has its number, from 0, and is later than that many batches; so is what an epoch saves at its end.
    At the beginning of an epoch, a model may be the one that the training had ended with, and is not later.
    """
    found = {path: MODEL.fullmatch(path.name) for path in sorted(parent.glob("model_epoch_*")) if path.is_dir()}
    places = {path: (int(match[1]), int(match[2])) for path, match in found.items() if match}
    return [path for path, place in places.items() if after is None or place > after or (place == after and after[1])]


# -- writing


def partial_of(folder: Path, beside: Path) -> Path:
    """Where a folder is written until it is complete."""
    return beside / f".{folder.name}{PARTIAL}"


def put_on_disk(folder: Path) -> dict[str, str]:
    """Make sure that all files of a folder are on the disk; gives their SHA-256 as read back from it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
            found[path.relative_to(folder).as_posix()] = seal.digest(path)
    return found


def seal_folder(folder: Path, state: Mapping[str, Any], step: int) -> None:
    """Write the seal of a folder whose files are all there."""
    files = put_on_disk(folder)
    store.write({**state, "files": files}, folder / SEAL, seal.Note(step, 0, complete=True))


def publish(written: Path, folder: Path) -> None:
    """Give a complete folder its name; one that has it makes way."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists():
            remove(folder, written.parent)
        os.rename(written, folder)
    except OSError as error:
        raise StorageError(f"{folder} cannot be written: {error.strerror or error}") from error
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on the disk, where the system can do that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def remove(folder: Path, beside: Path) -> None:
    """Remove a folder so that no half of it ever carries its name."""
    away = beside / f".{folder.name}{REMOVED}"
    shutil.rmtree(away, ignore_errors=True)
    os.rename(folder, away)
    shutil.rmtree(away, ignore_errors=True)


def keep_newest(parent: Path, limit: int, beside: Path) -> None:
    """Remove the oldest checkpoints until no more than so many are there; one always stays."""
    for folder in checkpoints(parent)[: -max(limit, 1)]:
        remove(folder, beside)


def sweep(beside: Path) -> None:
    """Remove what a kill in the middle of writing or removing has left."""
    for ending in (PARTIAL, REMOVED):
        for leftover in beside.glob(f".*{ending}"):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)


# -- reading


def damage(folder: Path) -> str:
    """What is wrong with a checkpoint; empty when every file of it is as it was written."""
    try:
        state = store.read(folder / SEAL, sealed=True)
    except StorageError as error:
        return f"it has no intact {SEAL}, so it is not complete or was not written by this trainer ({error})"
    files = state.get("files")
    if not isinstance(files, dict):
        return f"its {SEAL} does not say which files belong to it"
    for name, sha256 in files.items():
        path = folder / str(name)
        if not path.resolve().is_relative_to(folder.resolve()):
            return f"its {SEAL} names a file outside of it, {name!r}"
        if not path.is_file():
            return f"{name} is not there"
        if seal.digest(path) != sha256:
            return f"the bytes of {name} do not match their SHA-256"
    return ""


def find(where: Path, warn: Callable[[str], None]) -> Path:
    """The checkpoint to go on from: this one, or the newest intact one in this folder or in its `checkpoints`."""
    if (where / SEAL).exists() or number_of(where) >= 0:
        if problem := damage(where) if where.is_dir() else "there is no such folder":
            raise StorageError(f"{where} cannot be resumed from: {problem}")
        return where
    found = checkpoints(where) or checkpoints(where / "checkpoints")
    passed_over: list[str] = []
    for folder in sorted(found, key=_order, reverse=True):
        if not (problem := damage(folder)):
            for each in passed_over:
                warn(each)
            return folder
        passed_over.append(f"{folder}: {problem}")
    if passed_over:
        raise StorageError(f"there is no intact checkpoint in {where} to go on from:\n  " + "\n  ".join(passed_over))
    raise StorageError(f"there is no checkpoint in {where} to go on from")


def _order(folder: Path) -> tuple[int, int]:
    """Later in the run is greater; one that cannot say comes first, so that it is looked at, and said."""
    note = seal.read_note(folder / SEAL) if (folder / SEAL).is_file() else None
    return (sys.maxsize if note is None else note.step, number_of(folder))

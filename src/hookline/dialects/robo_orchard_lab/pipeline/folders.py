"""Numbered checkpoint folders: write them atomically, verify them and find them.

accelerate writes several files. They are written to a temporary folder, synced to disk and hashed. Then the folder gets
a seal: `trainer_state.pth`, a sealed file of the core that holds the hash of each file. Finally, the folder is renamed.
So a folder named `checkpoint_5` is complete. A checkpoint that was damaged by a kill, a full disk or an incomplete copy
is detected and skipped.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hookline.checkpoint import seal, store
from hookline.checkpoint.folders import SUFFIX
from hookline.common.files import PARTIAL as UNFINISHED
from hookline.common.files import storage_errors, sync_folder
from hookline.errors import StorageError

SEAL = "trainer_state.pth"
NAME = re.compile(r"checkpoint_([0-9]+)")
MODEL = re.compile(r"model_epoch_([0-9]+)_step_([0-9]+)")
#: Suffixes of folders that are being written or removed. A kill may leave them behind; `store.sweep` removes them.
PARTIAL, REMOVED = f"{SUFFIX}{UNFINISHED}", f".removed{SUFFIX}{UNFINISHED}"


def number_of(folder: Path) -> int:
    """Return the number of a checkpoint; -1 for a folder with any other name."""
    match = NAME.fullmatch(folder.name)
    return int(match[1]) if match else -1


def checkpoints(parent: Path) -> list[Path]:
    """Return the numbered checkpoints in a folder, oldest first."""
    found = [path for path in parent.glob("checkpoint_*") if path.is_dir() and number_of(path) >= 0]
    return sorted(found, key=number_of)


def models(parent: Path, after: tuple[int, int] | None) -> list[Path]:
    """Return the saved models in a folder: all of them, or only those later than `after`, an (epoch, batch) pair.

    Names count from 0, and `after` counts finished batches. So a model with the same pair as `after` was saved by the
    next step or at the end of the epoch, and is later. The exception is the start of an epoch (batch 0): such a model
    may be the one with which an earlier training ended, so it does not count as later.
    """
    found = {path: MODEL.fullmatch(path.name) for path in sorted(parent.glob("model_epoch_*")) if path.is_dir()}
    places = {path: (int(match[1]), int(match[2])) for path, match in found.items() if match}
    return [path for path, place in places.items() if after is None or place > after or (place == after and after[1])]


# -- writing


def partial_of(folder: Path, beside: Path) -> Path:
    """Return the temporary folder in which a folder is written until it is complete."""
    return beside / f".{folder.name}{PARTIAL}"


def sync_files(folder: Path) -> dict[str, str]:
    """Sync all files of a folder to disk, and return their SHA-256 hashes, read back from the files."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
            found[path.relative_to(folder).as_posix()] = seal.digest(path)
    return found


def seal_folder(folder: Path, state: Mapping[str, Any], step: int) -> None:
    """Write the seal of a folder after all of its files are written."""
    files = sync_files(folder)
    store.write_verified({**state, "files": files}, folder / SEAL, seal.Note(step, 0, complete=True))


def publish(written: Path, folder: Path) -> None:
    """Give a complete folder its final name; an existing folder of that name is removed first."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists():
            remove(folder, written.parent)
        os.rename(written, folder)
    except OSError as error:
        raise StorageError(f"{folder} cannot be written: {error.strerror or error}") from error
    sync_folder(folder.parent)


def link_files(folder: Path) -> None:
    """Let links beside a checkpoint lead to its files: `root/optimizer.bin` to `root/checkpoint_5/optimizer.bin`.

    Each link is replaced in one step. Links to another checkpoint whose files this one does not have are removed. Files
    that are not such links stay as they are, and so does everything if the system has no links.
    """
    root = folder.parent
    names = {path.name for path in folder.iterdir() if not path.name.startswith("trainer_")}
    old = {
        path.name for path in root.iterdir() if path.is_symlink() and NAME.fullmatch(Path(os.readlink(path)).parts[0])
    }
    with contextlib.suppress(OSError, NotImplementedError):
        for name in sorted(names):
            if name in old or not os.path.lexists(root / name):
                new = root / f".{name}.link"
                new.unlink(missing_ok=True)
                new.symlink_to(Path(folder.name, name))
                os.replace(new, root / name)
        for name in old - names:
            (root / name).unlink()


def remove(folder: Path, beside: Path) -> None:
    """Remove a folder. It is renamed first, so a partly removed folder never has its name."""
    away = beside / f".{folder.name}{REMOVED}"
    shutil.rmtree(away, ignore_errors=True)
    os.rename(folder, away)
    shutil.rmtree(away, ignore_errors=True)


def keep_newest(parent: Path, limit: int, beside: Path) -> None:
    """Remove the oldest checkpoints until at most `limit` are left. At least one always stays."""
    with storage_errors(parent, "removed", inside=True):
        for folder in checkpoints(parent)[: -max(limit, 1)]:
            remove(folder, beside)


# -- reading


def find_damage(folder: Path) -> str:
    """Return what is wrong with a checkpoint; empty if every file is as it was written."""
    try:
        state = store.read(folder / SEAL, sealed=True)
    except StorageError as error:
        return f"it has no intact {SEAL}, so it is incomplete or was not written by this trainer ({error})"
    files = state.get("files")
    if not isinstance(files, dict):
        return f"its {SEAL} does not list its files"
    for name, sha256 in files.items():
        path = folder / str(name)
        if not path.resolve().is_relative_to(folder.resolve()):
            return f"its {SEAL} names a file outside the folder, {name!r}"
        if not path.is_file():
            return f"{name} is missing"
        if seal.digest(path) != sha256:
            return f"the bytes of {name} do not match their SHA-256"
    return ""


def find(where: Path, warn: Callable[[str], None]) -> Path:
    """Return the checkpoint to resume from: this folder, or the newest intact one in it or in its `checkpoints`."""
    if (where / SEAL).exists() or number_of(where) >= 0:
        if problem := find_damage(where) if where.is_dir() else "there is no such folder":
            raise StorageError(f"cannot resume from {where}: {problem}")
        return where
    found = checkpoints(where) or checkpoints(where / "checkpoints")
    skipped: list[str] = []
    for folder in sorted(found, key=_sort_key, reverse=True):
        if not (problem := find_damage(folder)):
            for each in skipped:
                warn(each)
            return folder
        skipped.append(f"{folder}: {problem}")
    if skipped:
        raise StorageError(f"there is no intact checkpoint in {where} to resume from:\n  " + "\n  ".join(skipped))
    raise StorageError(f"there is no checkpoint in {where} to resume from")


def _sort_key(folder: Path) -> tuple[int, int]:
    """Sort by step. A folder without a readable step counts as the newest, so that it is checked and reported."""
    note = seal.read_note(folder / SEAL) if (folder / SEAL).is_file() else None
    return (sys.maxsize if note is None else note.step, number_of(folder))

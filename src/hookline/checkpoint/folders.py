"""Sharded checkpoints as folders: how they are found, replaced and removed. This module does not import torch.

    epoch_3.dcp/
        checkpoint.pth     the sealed file: everything that is not sharded, and where each part of a tensor is
        __0_0.distcp       the parts of process 0, as torch.distributed.checkpoint writes them
        __1_0.distcp       the parts of process 1
        .metadata          a pickle for other tools, which hookline never reads

A folder is written under a temporary name and renamed when it is complete. One that is removed is renamed first, so a
kill leaves either all of it, or a leftover that the next start removes.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hookline.common.files import PARTIAL, refuse_other_kinds, sync_folder
from hookline.errors import StorageError

SUFFIX = ".dcp"
SEALED = "checkpoint.pth"
METADATA = ".metadata"
#: The ending of a folder that is being replaced by a new one of the same name.
REPLACED = f".replaced{PARTIAL}"
#: The reason not to use a folder of another program.
FOREIGN = (
    f"it is a folder of torch.distributed.checkpoint without the sealed {SEALED} of hookline, and loading its "
    f"{METADATA} could run code; if you trust it, convert it to one file with torch.distributed.checkpoint.format_utils"
)


def is_sharded(path: Path) -> bool:
    """Return whether a path is the folder of a sharded checkpoint, of hookline or another program."""
    if not os.path.isdir(path):  # unlike `Path.is_dir`, it accepts any text
        return False
    return path.suffix == SUFFIX or (path / SEALED).is_file() or (path / METADATA).is_file()


def sealed_file(path: Path) -> Path:
    """Return the file of a checkpoint that has the seal: itself, or one in its folder."""
    return path / SEALED if is_sharded(path) else path


def is_foreign(path: Path) -> bool:
    """Return whether a folder of shards was written by another program, or has lost its sealed file."""
    return is_sharded(path) and not (path / SEALED).is_file()


def exists(path: Path) -> bool:
    """Return whether there is a file or a folder that may be a checkpoint."""
    return os.path.isfile(path) or is_sharded(path)


def find_all(folder: Path) -> list[Path]:
    """Return the files and folders that are named like checkpoints, by name."""
    return sorted([*folder.glob("*.pth"), *folder.glob(f"*{SUFFIX}")])


def size_of(path: Path) -> int:
    """Return the bytes of a checkpoint."""
    return sum(file.stat().st_size for file in path.iterdir()) if path.is_dir() else path.stat().st_size


def remove(path: Path) -> None:
    """Remove a checkpoint, if it exists."""
    if path.is_dir() and not path.is_symlink():
        leftover = path.with_name(f".{path.name}{PARTIAL}")
        shutil.rmtree(leftover, ignore_errors=True)
        os.replace(path, leftover)
        shutil.rmtree(leftover)
    else:
        path.unlink(missing_ok=True)


def begin(path: Path) -> Path:
    """Create the temporary folder of a checkpoint, and return it."""
    temporary = path.with_name(f".{path.name}{PARTIAL}")
    refuse_other_kinds(path, folders=True)
    if path.exists() and not path.is_dir():
        raise StorageError(f"{path} is a file, so a sharded checkpoint, which is a folder, cannot have this name")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    return temporary


def put_in_place(temporary: Path, path: Path) -> None:
    """Rename a folder that is complete. An earlier one of this name stays until the new one is there."""
    sync_folder(temporary)
    replaced = path.with_name(f".{path.name}{REPLACED}")
    if path.is_dir():
        shutil.rmtree(replaced, ignore_errors=True)
        os.replace(path, replaced)
    os.replace(temporary, path)
    sync_folder(path.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove leftovers of a process that was killed during a save. Undo a replacement that did not finish."""
    for replaced in folder.glob(f".*{SUFFIX}{REPLACED}"):
        path = replaced.with_name(replaced.name.removeprefix(".").removesuffix(REPLACED))
        if not path.exists():
            os.replace(replaced, path)
    for leftover in folder.glob(f".*{PARTIAL}"):
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover)
        else:
            leftover.unlink(missing_ok=True)

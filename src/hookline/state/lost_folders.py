"""Folders of a run that were deleted while it runs: finding them, and the error that ends the run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hookline.errors import StorageError
from hookline.rundir import ownership


def find(folders: Iterable[Path]) -> list[Path]:
    """Return the folders that were deleted since they were locked. Refuse those that another run uses now.

    A relative folder is also refused after the working directory has changed.
    """
    folders = list(folders)
    for folder in folders:
        if place := ownership.place_before(folder):
            raise StorageError(
                f"the working directory was changed during the run, so {folder} no longer means {place}: nothing was "
                "saved after that; do not call os.chdir, or give work_dir as an absolute path"
            )
    lost = [folder for folder in folders if ownership.is_lost(folder)]
    if taken := [str(folder) for folder in lost if (folder / ownership.LOCK).exists()]:
        raise StorageError(
            f"{', '.join(taken)} was deleted or moved during the run, and another run uses it now, so nothing was "
            "saved after that"
        )
    return lost


def error(folders: Iterable[Path], saved: Iterable[Path]) -> StorageError:
    """Return the error about deleted folders. `saved` are the checkpoints that were written after that."""
    written = ", ".join(map(str, saved))
    after = f"saved {written} after that; continue with resume=True, or hookline train --resume"
    return StorageError(
        f"{', '.join(map(str, folders))} was deleted or moved during the run, with everything in it; "
        + (after if written else "nothing was saved after that")
    )

"""Moves of files to `old-1/`, `old-2/`, ... that a kill cannot leave half done, even if they are in several folders.

    .old-1             files are on their way, or on their way back: the next start moves them back
    .old-1.complete    all files of all folders have been moved: the next start gives every folder its final name
    old-1              the final name

Files are moved one by one, so a kill is always possible between two of them. Each state follows from the names alone,
and both ways can be killed and started again.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from hookline.common.files import kind_of, not_own, sync_folder

#: Returns where a file in the archive of a folder was: `origin(path, folder)`.
Origin = Callable[[Path, Path], Path]

_UNDER_WAY = re.compile(r"\.old-[1-9][0-9]*")
_COMPLETE = ".complete"
# The folder inside an archive for copies. They leave it when all files have been moved, so that a move back never
# replaces a file by its copy, which may be incomplete.
_COPIES = ".copies"


def move_all(
    files: Mapping[Path, Iterable[Path]], origin: Origin, copies: Mapping[Path, Iterable[Path]] | None = None
) -> dict[Path, Path]:
    """Move files of each folder into its next free `old-1/`, `old-2/`, ... and return these; none without files.

    `copies` are files or folders that are copied there. Missing ones are left out, and so are the copies for a
    folder that has no files to move. If anything fails, all files are moved back.
    """
    to_move = {folder: listed for folder, each in files.items() if (listed := list(each))}
    archives = {folder: _free_name(folder) for folder in to_move}
    under_way = {folder: _hidden(archive) for folder, archive in archives.items()}
    try:
        for folder, way in under_way.items():
            way.mkdir()
            sync_folder(folder)
            for path in (copies or {}).get(folder, ()):
                _copy(path, way / _COPIES)
            for path in to_move[folder]:
                path.rename(way / path.name)
            # The names have to be on the disk before the archive counts as complete.
            for each in dict.fromkeys([way, folder, *(path.parent for path in to_move[folder])]):
                sync_folder(each)
    except BaseException:
        with suppress(OSError):  # the next start moves the rest back
            for folder, way in under_way.items():
                _move_back(way, folder, origin)
        raise
    for old, new in _steps(archives):
        _rename(old, new)
    return archives


def move_all_back(archives: Mapping[Path, Path], origin: Origin) -> None:
    """Move all files of archives back to their folders, and replace those that have their names now."""
    for old, new in reversed(_steps(archives)):
        _rename(new, old)
    for folder, archive in archives.items():
        _move_back(_hidden(archive), folder, origin)


def are_unfinished(folders: Iterable[Path]) -> bool:
    """Return whether a process was killed while it moved files of one of these folders."""
    return any(_find(folder, ending) for folder in folders for ending in ("", _COMPLETE))


def finish(folders: Iterable[Path], origin: Origin) -> list[str]:
    """Finish the moves during which a process was killed, forward or back. Return a line about each of them."""
    folders = list(folders)
    under_way = [(folder, path) for folder in folders for path in _find(folder, "")]
    complete = [(folder, path) for folder in folders for path in _find(folder, _COMPLETE)]
    lines = []
    # The complete ones are last: as long as one of them is there, a kill does not change the direction.
    for where, way in [*under_way, *complete]:
        if complete:
            archive = _free_name(where)
            _rename(way, archive)
            lines.append(f"moved the files of an earlier run from {where} to {archive}, which a kill had interrupted")
        else:
            _move_back(way, where, origin)
            lines.append(f"restored the files of the earlier run in {where}: a kill had interrupted their move")
    return lines


def _steps(archives: Mapping[Path, Path]) -> list[tuple[Path, Path]]:
    """Return the renames that give all archives their final names. The first one decides, for all of them."""
    if not archives:
        return []
    first, *others = archives.values()
    complete = first.with_name(_hidden(first).name + _COMPLETE)
    return [(_hidden(first), complete), *((_hidden(archive), archive) for archive in others), (complete, first)]


def _hidden(archive: Path) -> Path:
    return archive.with_name(f".{archive.name}")


def _free_name(folder: Path) -> Path:
    number = 1
    while os.path.lexists(folder / f"old-{number}"):
        number += 1
    return folder / f"old-{number}"


def _find(folder: Path, ending: str) -> list[Path]:
    """Return the archives of unfinished moves in a folder. Refuse anything else that has such a name."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    under_way = [name for name in names if name.endswith(ending) and _UNDER_WAY.fullmatch(name.removesuffix(ending))]
    for path in (paths := [folder / name for name in sorted(under_way)]):
        if path.is_symlink() or not path.is_dir():
            raise not_own(path, "folder", kind_of(os.lstat(path)) or "a regular file")
    return paths


def _rename(old: Path, new: Path) -> None:
    if not new.name.startswith("."):  # its final name
        _take_copies(old)
    old.rename(new)
    sync_folder(new.parent)


def _copy(path: Path, folder: Path) -> None:
    """Copy a file or folder into a folder, if it exists."""
    if not path.exists():
        return
    folder.mkdir(exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, folder / path.name, symlinks=True)
    else:
        shutil.copy(path, folder)


def _take_copies(archive: Path) -> None:
    copies = archive / _COPIES
    if copies.is_dir():
        for path in sorted(copies.iterdir()):
            path.rename(archive / path.name)
        copies.rmdir()


def _move_back(way: Path, folder: Path, origin: Origin) -> None:
    if not way.exists():  # it failed before it was created
        return
    remove(way / _COPIES)
    for path in sorted(way.iterdir()):
        target = origin(path, folder)
        remove(target)
        path.rename(target)
        sync_folder(target.parent)
    way.rmdir()
    sync_folder(folder)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

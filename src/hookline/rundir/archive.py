"""The files that belong to a run, and the archive folders they move to when a new run starts in the same folder."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hookline.checkpoint import folders
from hookline.checkpoint.names import NAMES
from hookline.checkpoint.seal import Note, read_note
from hookline.common.files import PARTIAL, refuse_other_kinds
from hookline.errors import ConfigError, HookError, StorageError, blame
from hookline.rundir import control, journal
from hookline.writers import built_in_files

if TYPE_CHECKING:
    from hookline.screen.terminal import Terminal

# The files of a run, apart from its checkpoints and the files of its writers. All other files in the folder belong to
# the user.
OWN_FILES = (
    *("config.yaml", "last_checkpoint", "run.log", "plan.txt", "resume.json"),
    *("hooks.json", "profile.json", "report.html", journal.NAME, control.NAME),
)
# All names that a run uses in its folder, now or later: its files, temporary files and the lock (which begin with a
# dot), checkpoints, archives and traces. Some file systems ignore case.
RESERVED = re.compile(
    "|".join([*map(re.escape, OWN_FILES), r"\..*", r".*\.(pth|dcp)", "old-[0-9]+", r"profile_[0-9]+\.json"]),
    re.IGNORECASE | re.DOTALL,
)


def refuse_foreign(folder: Path, records: Iterable[str], checkpoint_names: re.Pattern[str]) -> None:
    """Refuse a folder in which something other than a regular file has the name of a file that a run uses.

    Records may be folders. A checkpoint may be a link, because it is replaced as a whole and otherwise only read.
    """
    for name in OWN_FILES:
        refuse_other_kinds(folder / name)
    for name in records:
        refuse_other_kinds(folder / name, folders=True)
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") and path.name.endswith(PARTIAL):
            refuse_other_kinds(path, folders=folders.SUFFIX in path.name)
        elif checkpoint_names.fullmatch(path.name):
            refuse_other_kinds(path, links=True, folders=path.suffix == folders.SUFFIX)


def archive_run(folder: Path, records: Iterable[str] = ()) -> Path | None:
    """Move the files of an earlier run into the next free `old-1/`, `old-2/`, ... and return it; None without files.

    `records` are the files of this run's writers, in case they have custom names.
    """
    names = dict.fromkeys((*OWN_FILES, *built_in_files(), *records))
    traces = sorted(folder.glob("profile_[0-9]*.json"))
    return move_to_archive(
        folder, [path for name in names if os.path.lexists(path := folder / name)] + traces + checkpoints(folder)
    )


def archive_later_checkpoints(folder: Path, than: Note) -> Path | None:
    """Move the checkpoints that are later than the one being resumed: the run will save those steps again."""
    return move_to_archive(
        folder, [path for path in checkpoints(folder) if (n := read_note(path)) and n.order > than.order]
    )


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints that runs have saved in a folder; other `.pth` files belong to the user."""
    found = filter(folders.exists, folders.find_all(folder))
    return sorted(path for path in found if NAMES.fullmatch(path.name) or read_note(path) is not None)


def move_to_archive(folder: Path, files: Iterable[Path]) -> Path | None:
    """Move the files into the next free `old-1/`, `old-2/`, ... of a folder and return it; None without files."""
    files = list(files)
    if not files:
        return None
    number = 1
    while os.path.lexists(old := folder / f"old-{number}"):
        number += 1
    old.mkdir()
    for file in files:
        file.rename(old / file.name)
    return old


class RunProgress(Protocol):
    """The parts of a run that show whether it has finished a step or saved anything."""

    terminal: Terminal
    saving: Any
    attempt: str

    @property
    def iter(self) -> int:
        """Return the number of finished iterations."""


def restore_archived(
    old: Path,
    folder: Path,
    runner: RunProgress,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: object,
) -> None:
    """Restore the earlier run's files if the new run was refused before its first step.

    The signature is that of an exit callback of `contextlib.ExitStack`.
    """
    if not isinstance(error, Exception) or runner.iter or runner.saving.saved_at >= 0:
        return
    before_training = not runner.attempt and not isinstance(error, StorageError)
    if not (before_training or isinstance(error, (ConfigError, HookError))):
        return
    try:
        for path in old.iterdir():
            origin = runner.saving.origin_of(path, folder)
            _remove(origin)
            path.rename(origin)
        old.rmdir()
    except OSError as another:
        blame(error, f"the files of the earlier run stay in {old}: {another.strerror or another}")
    else:
        runner.terminal.say(f"restored the files of the earlier run in {folder}")


def drop_records(folder: Path, records: Iterable[str]) -> None:
    """Remove the records of an attempt that died before its first checkpoint: its steps will run again."""
    for name in records:
        _remove(folder / name)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def copy_to_archive(path: Path, old: Path) -> None:
    """Copy a file or folder of records, if it exists, into an archive folder."""
    if path.is_dir():
        shutil.copytree(path, old / path.name, symlinks=True)
    elif path.exists():
        shutil.copy(path, old)

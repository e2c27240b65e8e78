"""The files that belong to a run. They move to an archive (`moves`) when a new run starts in the same folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hookline.checkpoint import folders
from hookline.checkpoint.names import NAMES
from hookline.checkpoint.seal import Note, read_note
from hookline.common.files import PARTIAL, refuse_other_kinds
from hookline.errors import StorageError, blame
from hookline.rundir import capsule, control, journal, loss_bits, moves
from hookline.writers import built_in_files

if TYPE_CHECKING:
    from hookline.run.position import Position
    from hookline.screen.terminal import Terminal

# The files of a run, apart from its checkpoints and the files of its writers. All other files in the folder belong to
# the user.
OWN_FILES = (
    *("config.yaml", "last_checkpoint", "run.log", "plan.txt", "resume.json"),
    *("hooks.json", "profile.json", "report.html", journal.NAME, control.NAME),
    *(loss_bits.NAME, capsule.NAME, capsule.TRIAGE),
)
# All names that a run uses in its folder, now or later: its files, temporary files and the lock (which begin with a
# dot), checkpoints, archives and traces. Some file systems ignore case.
RESERVED = re.compile(
    "|".join(
        [
            *map(re.escape, OWN_FILES),
            r"\..*",
            r".*\.(pth|dcp)",
            "old-[0-9]+",
            r"profile_[0-9]+\.json",
            capsule.NAMES.pattern,
        ]
    ),
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


def files_of_run(folder: Path, records: Iterable[str] = ()) -> list[Path]:
    """Return the files of an earlier run in a folder.

    `records` are the files of this run's writers, in case they have custom names.
    """
    names = dict.fromkeys((*OWN_FILES, *built_in_files(), *records))
    traces = sorted([*folder.glob("profile_[0-9]*.json"), *folder.glob("capsule-rank[0-9]*.json")])
    return [path for name in names if os.path.lexists(path := folder / name)] + traces + checkpoints(folder)


def later_checkpoints(folder: Path, than: Note) -> list[Path]:
    """Return the checkpoints that are later than the one being resumed: the run will save those steps again."""
    return [path for path in checkpoints(folder) if (n := read_note(path)) and n.order > than.order]


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints that runs have saved in a folder; other `.pth` files belong to the user."""
    paths = filter(folders.exists, folders.find_all(folder))
    return sorted(path for path in paths if NAMES.fullmatch(path.name) or read_note(path) is not None)


class RunProgress(Protocol):
    """The parts of a run that show whether it has finished a step or saved anything."""

    terminal: Terminal
    saving: Any
    position: Position


def restore_archived(
    archives: Mapping[Path, Path],
    runner: RunProgress,
    origin_of: Callable[[Path, Path], Path],
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: object,
) -> None:
    """Restore the earlier run's files if the new run was refused before its first step.

    It has the signature of an exit callback of `contextlib.ExitStack`.
    """
    if not isinstance(error, Exception) or runner.position.iter or runner.saving.saved_at >= 0:
        return
    if isinstance(error, StorageError):  # then the files cannot be moved, either
        return
    try:
        for folder in archives:
            capsule.forget(folder)  # it belongs to the run that was refused
        moves.move_all_back(archives, origin_of)
    except OSError as another:
        where = " and ".join(map(str, archives.values()))
        blame(error, f"the earlier run's files cannot be moved back from {where}: {another.strerror or another}")
    else:
        for folder in archives:
            runner.terminal.say(f"restored the files of the earlier run in {folder}")


def drop_records(folder: Path, records: Iterable[str]) -> None:
    """Remove the records of an attempt that died before its first checkpoint: its steps will run again."""
    for name in records:
        moves.remove(folder / name)

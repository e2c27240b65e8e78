"""The files of a run: which they are, and where they go when a new run starts in the same folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hookline.checkpoint.names import NAMES
from hookline.checkpoint.seal import Note, read_note
from hookline.errors import ConfigError, HookError
from hookline.writers import built_in_files

if TYPE_CHECKING:
    from hookline.screen.terminal import Terminal

# What a run leaves, besides its checkpoints and what its writers make; everything else in the folder is the user's.
OWN_FILES = ("config.yaml", "last_checkpoint", "run.log", "plan.txt", "hooks.json", "profile.json", "report.html")


def set_aside(folder: Path, records: Iterable[str] = ()) -> Path | None:
    """Move the files of an earlier run into `old-1/`, `old-2/`, ...; gives where they are now, if there were any.

    `records` are the files of this run's writers, where they have names of their own.
    """
    names = dict.fromkeys((*OWN_FILES, *built_in_files(), *records))
    traces = sorted(folder.glob("profile_[0-9]*.json"))
    return move_aside(
        folder, [path for name in names if (path := folder / name).exists()] + traces + checkpoints(folder)
    )


def set_later_aside(folder: Path, than: Note) -> Path | None:
    """Move checkpoints aside that are later in the run than the one it goes on from: it will come there anew."""
    return move_aside(folder, [path for path in checkpoints(folder) if (n := read_note(path)) and n.order > than.order])


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints that runs have left in a folder; other files of the ending are the user's."""
    files = [path for path in folder.glob("*.pth") if path.is_file()]
    return sorted(path for path in files if NAMES.fullmatch(path.name) or read_note(path) is not None)


def move_aside(folder: Path, files: Iterable[Path]) -> Path | None:
    """Move these into `old-1/`, `old-2/`, ... of a folder; gives where they are now, if there were any."""
    files = list(files)
    if not files:
        return None
    number = 1
    while (old := folder / f"old-{number}").exists():
        number += 1
    old.mkdir()
    for file in files:
        file.rename(old / file.name)
    return old


class Beginner(Protocol):
    """What tells whether a run has begun."""

    terminal: Terminal
    saving: Any

    @property
    def iter(self) -> int:
        """Finished iterations."""


def put_back(
    old: Path,
    folder: Path,
    runner: Beginner,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: object,
) -> None:
    """A run that was refused before its first step has not happened: what made way for it comes back."""
    if not isinstance(error, (ConfigError, HookError)) or runner.iter or runner.saving.saved_at >= 0:
        return
    for path in old.iterdir():
        _remove(folder / path.name)
        path.rename(folder / path.name)
    old.rmdir()
    runner.terminal.say(f"the files of the earlier run are in {folder} again")


def drop_records(folder: Path, records: Iterable[str]) -> None:
    """Remove what an attempt that died before its first checkpoint has recorded: its steps will be made again."""
    for name in records:
        _remove(folder / name)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def copy_aside(path: Path, old: Path) -> None:
    """Copy a file or a folder of records, if it is there, to what was moved aside."""
    if path.is_dir():
        shutil.copytree(path, old / path.name)
    elif path.exists():
        shutil.copy(path, old)

"""The folder of a run: whose it is, what it holds, and where an old run's files go when a new one starts in it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hookline.checkpoint.names import NAMES
from hookline.checkpoint.seal import Note, read_note
from hookline.errors import ConfigError, HookError, StorageError

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from hookline.terminal import Terminal

log = logging.getLogger("hookline")

LOCK = ".lock"
# The folders that runs of this process are in: the lock of a process does not keep out the process itself.
_held: set[Path] = set()

# What writers leave that are not told otherwise; what else a writer makes, it says itself (`Writer.files`).
RECORDS = ("metrics.jsonl", "metrics.csv", "tensorboard", "wandb", "mlflow.db", "mlflow")
# What a run leaves, besides its checkpoints; everything else in the folder is the user's and stays.
FILES = ("config.yaml", "last_checkpoint", "run.log", "plan.txt", "hooks.json", "profile.json", "report.html", *RECORDS)


def claim(folder: Path) -> None:
    """Make the folder, and make sure that it can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise StorageError(f"work_dir {folder} cannot be written: {error.strerror or error}") from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder while this one is in it.

    The lock is one of the process: its loader workers do not inherit it, and it is free when the process is gone,
    however it went.
    """
    mine = folder.resolve()
    if mine in _held:
        raise StorageError(f"{folder} is in use by another run of this process ({os.getpid()})")
    path = folder / LOCK
    try:
        file = open(path, "a+b")  # noqa: SIM115  # closed below, which opens the lock
    except OSError as error:
        raise StorageError(f"{path} cannot be opened: {error.strerror or error}") from error
    try:
        if sys.platform != "win32":
            _lock(file.fileno(), folder)
        if not path.exists() or not os.path.samestat(path.stat(), os.fstat(file.fileno())):
            raise StorageError(f"{folder} was in use until this moment by another run; try again")
        _held.add(mine)
        try:
            yield
        finally:
            _held.discard(mine)
            path.unlink(missing_ok=True)
    finally:
        file.close()


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        holder = os.pread(descriptor, 4096, 0)
        raise StorageError(
            f"{folder} is in use{_holder(holder)}; wait for that run, end it, or choose another work_dir"
        ) from None
    except OSError as error:
        log.warning("%s cannot be locked (%s); make sure that no other run uses it", folder, error.strerror or error)
        return
    os.ftruncate(descriptor, 0)
    said = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    os.write(descriptor, json.dumps(said).encode())


def _holder(said: bytes) -> str:
    try:
        found = json.loads(said)
        return f" by process {int(found['pid'])} on {found['host']!s} since {found['since']!s}"
    except (ValueError, KeyError, TypeError):
        return ""


def is_in_use(folder: Path) -> bool | None:
    """Whether a run is in a folder now; None where that cannot be told, because it would be on another machine.

    The lock itself is not tried: a run that starts in that moment would be refused.
    """
    if folder.resolve() in _held:  # its file must not be opened here: closing it would open the lock
        return True
    try:
        said = json.loads((folder / LOCK).read_bytes())
        pid, host = int(said["pid"]), said["host"]
    except FileNotFoundError:
        return False
    except (ValueError, KeyError, TypeError, OSError):
        return None
    import psutil

    return bool(psutil.pid_exists(pid)) if host == socket.gethostname() else None


def set_aside(folder: Path, records: Iterable[str] = ()) -> Path | None:
    """Move the files of an earlier run into `old-1/`, `old-2/`, ...; gives where they are now, if there were any.

    `records` are the files of this run's writers, where they have names of their own.
    """
    names = dict.fromkeys((*FILES, *records))
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

"""Ownership of a run's folder: at most one process uses it at a time."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hookline.common import forks
from hookline.common.files import (
    PARTIAL,
    create_folder,
    is_at,
    not_own,
    owned,
    real_path,
    refuse_other_kinds,
    regular,
    storage_errors,
)
from hookline.errors import StorageError

if sys.platform != "win32":
    import fcntl

log = logging.getLogger("hookline")

LOCK = ".lock"
PROBE = ".writable"
# The start of the record in the file of a lock.
RECORD = b'{"pid": '
# The folders in use by this process: the file lock does not stop the process that holds it from locking again.
_held: set[Path] = set()
# The open directories of the locked folders. As long as one is open, no other folder gets its inode.
_directories: dict[Path, int] = {}
# Where the folders were when they were locked.
_places: dict[Path, Path] = {}
forks.call_in_children(_held.clear)  # a forked process holds none of the locks


def claim(folder: Path) -> None:
    """Create the folder and check that it is writable."""
    try:
        create_folder(folder)
        refuse_other_kinds(folder / PROBE)  # a folder that was prepared for a run that would follow this name
        # A new name, because another file under a fixed one would be emptied. `sweep` removes it after a kill.
        descriptor, probe = tempfile.mkstemp(PARTIAL, f"{PROBE}-", folder)
        os.close(descriptor)
        os.unlink(probe)
    except OSError as error:
        raise StorageError(f"work_dir {folder} cannot be written: {error.strerror or error}") from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other runs while the context is active.

    The lock belongs to the process. Its loader workers do not inherit it, and the system releases it when the process
    ends, even after `kill -9`.
    """
    mine = real_path(folder)
    if mine in _held:
        raise StorageError(f"{folder} is in use by another run of this process ({os.getpid()})")
    path = folder / LOCK
    refuse_other_kinds(path)
    try:
        file = open(path, "a+b", opener=owned)  # noqa: SIM115  # closed below, which releases the lock
    except OSError as error:
        raise StorageError(f"{path} cannot be opened: {error.strerror or error}") from error
    try:
        if sys.platform != "win32":
            _lock(file.fileno(), folder)
        if not is_at(path, file.fileno()):
            raise StorageError(f"{folder} was in use by another run until just now; try again")
        with _watched(folder):
            _held.add(mine)
            try:
                yield
            finally:
                if mine in _held:  # not in a forked process
                    _held.discard(mine)
                    if not is_lost(folder):  # otherwise it may be the lock of another run
                        _remove(path)
    finally:
        file.close()


def _remove(path: Path) -> None:
    """Remove the file of the lock. Without the lock itself, a file that stays does not keep another run away."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s cannot be removed: %s", path, error.strerror or error)


@contextmanager
def _watched(folder: Path) -> Iterator[None]:
    """Keep a folder open, so that `is_lost` can tell it from a later one of the same name."""
    if sys.platform == "win32":  # it does not delete a folder with an open file
        yield
        return
    directory = _directories[folder] = os.open(folder, os.O_RDONLY)
    _places[folder] = real_path(folder)
    try:
        yield
    finally:
        del _directories[folder], _places[folder]
        os.close(directory)


def is_lost(folder: Path) -> bool:
    """Return whether a folder that this process has locked was deleted, moved or replaced since."""
    if folder not in _directories:
        return False
    try:
        return not os.path.samestat(os.stat(folder), os.fstat(_directories[folder]))
    except OSError as error:  # any other error does not say that it is gone
        return error.errno in (errno.ENOENT, errno.ENOTDIR)


def place_before(folder: Path) -> Path | None:
    """Return where a relative folder still is if it seems lost only because the working directory has changed."""
    at = _places.get(folder)
    if folder.is_absolute() or at is None or not is_lost(folder):
        return None
    return at if is_at(at, _directories[folder]) else None


def find_lost(folders: Iterable[Path]) -> list[Path]:
    """Return the folders that were deleted since they were locked. Refuse those that another run uses now.

    A relative folder is also refused after the working directory has changed.
    """
    folders = list(folders)
    for folder in folders:
        if place := place_before(folder):
            raise StorageError(
                f"the working directory was changed during the run, so {folder} no longer means {place}: nothing was "
                "saved after that; do not call os.chdir, or give work_dir as an absolute path"
            )
    lost = [folder for folder in folders if is_lost(folder)]
    if taken := [str(folder) for folder in lost if (folder / LOCK).exists()]:
        raise StorageError(
            f"{', '.join(taken)} was deleted or moved during the run, and another run uses it now, so nothing was "
            "saved after that"
        )
    return lost


def lost_error(folders: Iterable[Path], saved: Iterable[Path]) -> StorageError:
    """Return the error about deleted folders. `saved` are the checkpoints that were written after that."""
    written = ", ".join(map(str, saved))
    after = f"saved {written} after that; continue with resume=True, or hookline train --resume"
    return StorageError(
        f"{', '.join(map(str, folders))} was deleted or moved during the run, with everything in it; "
        + (after if written else "nothing was saved after that")
    )


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        holder = os.pread(descriptor, 4096, 0)
        raise StorageError(
            f"{folder} is in use{_describe(holder)}; wait for that run, end it, or choose another work_dir"
        ) from None
    except OSError as error:
        log.warning("%s cannot be locked (%s); make sure that no other run uses it", folder, error.strerror or error)
        return
    with storage_errors(folder / LOCK):
        # A full disk may have cut it short, and a power failure may have left only NUL bytes.
        content = os.pread(descriptor, 4096, 0).rstrip(b"\0")[: len(RECORD)]
        if not RECORD.startswith(content):
            raise not_own(folder / LOCK, "lock", "a file of another program")
        os.ftruncate(descriptor, 0)
        record = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        os.write(descriptor, json.dumps(record).encode())


def _describe(holder: bytes) -> str:
    try:
        record = json.loads(holder)
        return f" by process {int(record['pid'])} on {record['host']!s} since {record['since']!s}"
    except (ValueError, KeyError, TypeError):
        return ""


def is_in_use(folder: Path) -> bool | None:
    """Return whether a run uses a folder now; None if this is unknown because the run would be on another machine.

    This does not try to take the lock, because a run that starts at that moment would be refused.
    """
    if real_path(folder) in _held:  # do not open the lock file here: closing it would release the lock
        return True
    try:
        with open(folder / LOCK, "rb", opener=regular) as file:
            holder = json.loads(file.read(4096))
            held = _is_held(file.fileno())
        pid, host = int(holder["pid"]), holder["host"]
    except FileNotFoundError:
        return False
    except (ValueError, KeyError, TypeError, OSError):
        return None
    if host != socket.gethostname():
        return held or None
    return _is_alive(pid) if held is None else held


def holder_of(folder: Path) -> dict[str, Any]:
    """Read the lock of a folder: pid, host and start of the run that has it, or had it; empty without a lock."""
    try:
        with open(folder / LOCK, "rb", opener=regular) as file:
            record = json.loads(file.read(4096))
        return {"pid": int(record["pid"]), "host": str(record["host"]), "since": str(record["since"])}
    except (ValueError, KeyError, TypeError, OSError):
        return {}


def _is_held(descriptor: int) -> bool | None:
    """Return whether another process has the lock of an open file; None if the system cannot tell.

    A process that was killed may still exist until its parent has noticed, and another process may have its number.
    """
    if sys.platform != "linux":
        return None
    layout = "hhqqi"  # type, whence, start, length, pid
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(layout, fcntl.F_WRLCK, 0, 0, 0, 0))
    except OSError:
        return None
    return bool(struct.unpack(layout, answer)[0] != fcntl.F_UNLCK)


def _is_alive(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False

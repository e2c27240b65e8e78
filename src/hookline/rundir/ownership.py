"""Ownership of a run's folder: at most one process uses it at a time."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hookline.errors import StorageError

if sys.platform != "win32":
    import fcntl

log = logging.getLogger("hookline")

LOCK = ".lock"
# The folders in use by this process: the file lock does not stop the process that holds it from locking again.
_held: set[Path] = set()
# The open directories of the locked folders. As long as one is open, no other folder gets its inode.
_directories: dict[Path, int] = {}


def claim(folder: Path) -> None:
    """Create the folder and check that it is writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise StorageError(f"work_dir {folder} cannot be written: {error.strerror or error}") from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other runs while the context is active.

    The lock belongs to the process. Its loader workers do not inherit it, and the system releases it when the process
    ends, even after `kill -9`.
    """
    mine = folder.resolve()
    if mine in _held:
        raise StorageError(f"{folder} is in use by another run of this process ({os.getpid()})")
    path = folder / LOCK
    try:
        file = open(path, "a+b")  # noqa: SIM115  # closed below, which releases the lock
    except OSError as error:
        raise StorageError(f"{path} cannot be opened: {error.strerror or error}") from error
    try:
        if sys.platform != "win32":
            _lock(file.fileno(), folder)
        if not path.exists() or not os.path.samestat(path.stat(), os.fstat(file.fileno())):
            raise StorageError(f"{folder} was in use by another run until just now; try again")
        with _watched(folder):
            _held.add(mine)
            try:
                yield
            finally:
                _held.discard(mine)
                if not is_lost(folder):  # otherwise it may be the lock of another run
                    path.unlink(missing_ok=True)
    finally:
        file.close()


@contextmanager
def _watched(folder: Path) -> Iterator[None]:
    """Keep a folder open, so that `is_lost` can tell it from a later one of the same name."""
    if sys.platform == "win32":  # it does not delete a folder with an open file
        yield
        return
    directory = _directories[folder] = os.open(folder, os.O_RDONLY)
    try:
        yield
    finally:
        del _directories[folder]
        os.close(directory)


def is_lost(folder: Path) -> bool:
    """Return whether a folder that this process has locked was deleted, moved or replaced since."""
    if folder not in _directories:
        return False
    try:
        return not os.path.samestat(os.stat(folder), os.fstat(_directories[folder]))
    except OSError as error:  # any other error does not say that it is gone
        return error.errno in (errno.ENOENT, errno.ENOTDIR)


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
    os.ftruncate(descriptor, 0)
    record = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    os.write(descriptor, json.dumps(record).encode())


def _describe(holder: bytes) -> str:
    try:
        found = json.loads(holder)
        return f" by process {int(found['pid'])} on {found['host']!s} since {found['since']!s}"
    except (ValueError, KeyError, TypeError):
        return ""


def is_in_use(folder: Path) -> bool | None:
    """Return whether a run uses a folder now; None if this is unknown because the run would be on another machine.

    This does not try to take the lock, because a run that starts at that moment would be refused.
    """
    if folder.resolve() in _held:  # do not open the lock file here: closing it would release the lock
        return True
    try:
        holder = json.loads((folder / LOCK).read_bytes())
        pid, host = int(holder["pid"]), holder["host"]
    except FileNotFoundError:
        return False
    except (ValueError, KeyError, TypeError, OSError):
        return None
    import psutil

    return bool(psutil.pid_exists(pid)) if host == socket.gethostname() else None

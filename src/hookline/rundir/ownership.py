"""Who owns the folder of a run: at most one process at a time."""

from __future__ import annotations

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
# The folders that runs of this process are in: the lock of a process does not keep out the process itself.
_held: set[Path] = set()


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

"""Which process runs which trial: exactly one, also if several sweeps or machines work on one study.

A trial belongs to the folder in which it was started: `home` is the identity of that folder, and the study records it
with the trial. Machines that share a disk have the same home, so each can continue trials that another one left behind.
On separate disks, nobody touches the trials of another machine. In one home, a lock on `<n>/.claim` decides. The system
releases it when the sweep that holds it ends, even after `kill -9`.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import uuid
from pathlib import Path
from typing import IO

from hookline.common.files import create_folder, owned, real_path, refuse_other_kinds, regular, storage_errors
from hookline.rundir import ownership

if sys.platform != "win32":
    import fcntl

log = logging.getLogger("hookline")

HOME, CLAIM = ".home", ".claim"


def read_home(folder: Path) -> str:
    """Return the identity of a study's folder, which is created if necessary."""
    path = folder / HOME
    with storage_errors(path):
        create_folder(folder)
        refuse_other_kinds(path)
        if not os.path.lexists(path):
            temporary = folder / f"{HOME}-{uuid.uuid4().hex}"
            with open(temporary, "x", encoding="utf-8", opener=owned) as file:
                file.write(uuid.uuid4().hex)
            try:
                os.link(temporary, path)  # fails if another sweep was faster
            except FileExistsError:
                pass
            finally:
                temporary.unlink()
        with open(path, encoding="utf-8", opener=regular) as file:
            return file.read().strip()


class Claims:
    """The trials that this process owns, by their folders."""

    def __init__(self) -> None:
        self._held: dict[Path, IO[bytes]] = {}

    def take(self, folder: Path) -> bool:
        """Become the owner of a trial, and return whether that was possible: another process may own it or run it."""
        if real_path(folder) in self._held:
            return False
        path = folder / CLAIM
        with storage_errors(path):
            create_folder(folder)
            refuse_other_kinds(path)
            file = open(path, "a+b", opener=owned)  # noqa: SIM115  # closed by `release`, which ends the claim
        if not _lock(file, folder):
            file.close()
            return False
        if ownership.is_in_use(folder):  # its process has survived the sweep that started it
            file.close()
            return False
        self._held[real_path(folder)] = file
        return True

    def release(self, folder: Path) -> None:
        """Stop owning a trial."""
        file = self._held.pop(real_path(folder), None)
        if file is not None:
            file.close()

    def release_all(self) -> None:
        """Stop owning all trials."""
        for folder in list(self._held):
            self.release(folder)


def _lock(file: IO[bytes], folder: Path) -> bool:
    if sys.platform == "win32":
        return True
    try:
        fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        log.warning("%s cannot be locked (%s); make sure that one sweep uses it", folder, error.strerror or error)
    return True

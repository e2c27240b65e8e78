"""Copies of a run's logs in another folder.

They are copied when everything is closed, and fetched back before anything is opened.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hookline.common.files import real_path, regular, replacing
from hookline.errors import ConfigError, StorageError
from hookline.rundir import capsule

log = logging.getLogger("hookline")


@dataclass(frozen=True)
class LogCopies:
    """The folder for the copies, the endings of the files to copy, and whether the run's folder keeps its own."""

    out_dir: Path
    suffixes: tuple[str, ...]
    keep_local: bool

    def target(self, folder: Path) -> Path:
        """Return the folder for the copies of one run. Refuse the folder of the run itself."""
        target = self.out_dir / real_path(folder).name
        if real_path(target) == real_path(folder):
            raise ConfigError(f"LoggerHook: out_dir {self.out_dir} would copy the logs of {target} onto themselves")
        return target

    def fetch(self, folder: Path) -> None:
        """Fetch the logs that are missing in the folder of a resumed run. After a kill, none are missing."""
        for path in self._logs(self.target(folder)):
            if not (folder / path.name).exists():
                try:
                    _copy(path, folder)
                except OSError as error:
                    why = error.strerror or error
                    raise StorageError(f"{path}, which this run needs, cannot be copied to {folder}: {why}") from error

    def copy(self, folder: Path) -> None:
        """Copy the logs, and, without `keep_local`, remove each original after that. A failure is only a warning."""
        target = self.target(folder)
        for path in self._logs(folder):
            try:
                target.mkdir(parents=True, exist_ok=True)
                _copy(path, target)
                if not self.keep_local:
                    path.unlink()
            except (OSError, StorageError) as error:
                log.warning("%s could not be copied to %s: %s", path, target, getattr(error, "strerror", "") or error)

    def _logs(self, folder: Path) -> list[Path]:
        files = [path for path in folder.glob("*") if path.is_file() and path.name.endswith(self.suffixes)]
        return sorted(path for path in files if not capsule.NAMES.fullmatch(path.name))  # a replay looks for it here


def _copy(path: Path, folder: Path) -> None:
    """Copy a file completely or not at all: half a log would look like a complete one."""
    with open(path, "rb", opener=regular) as source, replacing(folder / path.name) as copy:
        shutil.copyfileobj(source, copy)
        copy.flush()
        shutil.copystat(path, copy.name)


class Copying:
    """Copies the logs of one run when everything is closed, once the run has its folder."""

    def __init__(self, folder: Path, hooks: Iterable[Any]) -> None:
        self._folder = folder
        self._hooks = hooks
        self._has_begun = False

    def begin(self, fetch: bool) -> None:
        """Note that the run has its folder. Fetch earlier logs before anything is added to them, if asked."""
        if fetch:
            for copies in wanted_by(self._hooks):
                copies.fetch(self._folder)
        self._has_begun = True

    def end(self) -> None:
        """Copy the logs to where hooks want them, including hooks that were registered during the run."""
        if self._has_begun:
            for copies in wanted_by(self._hooks):
                copies.copy(self._folder)


@contextmanager
def copying(folder: Path, hooks: Iterable[Any]) -> Iterator[Copying]:
    """Copy the logs of a run at the end, whatever happens, if it got as far as to have its folder."""
    copies = Copying(folder, hooks)
    try:
        yield copies
    finally:
        copies.end()


def wanted_by(hooks: Iterable[Any]) -> list[LogCopies]:
    """Return the copies that the hooks of a plan want."""
    declared = [getattr(entry.hook, "log_copies", None) for entry in hooks]
    return [copies for copies in declared if copies is not None]

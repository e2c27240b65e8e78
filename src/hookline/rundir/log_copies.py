"""Copies of a run's logs in another folder: made when everything is closed, fetched back before anything is opened."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hookline.errors import ConfigError, StorageError

log = logging.getLogger("hookline")


@dataclass(frozen=True)
class LogCopies:
    """Where the copies go, which files they are of, and whether the run's folder keeps its own."""

    out_dir: Path
    suffixes: tuple[str, ...]
    keep_local: bool

    def target(self, folder: Path) -> Path:
        """The folder for the copies of one run; its own folder is refused."""
        target = self.out_dir / folder.resolve().name
        if target.resolve() == folder.resolve():
            raise ConfigError(f"LoggerHook: out_dir {self.out_dir} would copy the logs of {target} onto themselves")
        return target

    def fetch(self, folder: Path) -> None:
        """Put back what a run that goes on lacks; after a kill it lacks nothing."""
        for path in self._logs(self.target(folder)):
            if not (folder / path.name).exists():
                try:
                    _copy(path, folder)
                except OSError as error:
                    why = error.strerror or error
                    raise StorageError(f"{path}, which this run needs, cannot be copied to {folder}: {why}") from error

    def copy(self, folder: Path) -> None:
        """Copy the logs; if they are not to be kept, each goes once its copy is there. A failure ends nothing."""
        target = self.target(folder)
        for path in self._logs(folder):
            try:
                target.mkdir(parents=True, exist_ok=True)
                _copy(path, target)
                if not self.keep_local:
                    path.unlink()
            except OSError as error:
                log.warning("%s could not be copied to %s: %s", path, target, error.strerror or error)

    def _logs(self, folder: Path) -> list[Path]:
        return sorted(path for path in folder.glob("*") if path.is_file() and path.name.endswith(self.suffixes))


def _copy(path: Path, folder: Path) -> None:
    """Copy a file whole or not at all: half a log would be taken for all of it."""
    partial = folder / f".{path.name}.partial"
    try:
        shutil.copy2(path, partial)
        os.replace(partial, folder / path.name)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


class Copying:
    """Copies the logs of one run when everything is closed, once the run has its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._copies: list[LogCopies] = []

    def begin(self, copies: list[LogCopies], fetch: bool) -> None:
        """The run has its folder. Fetch earlier logs before anything is added to them, if asked."""
        if fetch:
            for each in copies:
                each.fetch(self._folder)
        self._copies = copies

    def end(self) -> None:
        """Copy the logs to where hooks want them."""
        for each in self._copies:
            each.copy(self._folder)


@contextmanager
def copying(folder: Path) -> Iterator[Copying]:
    """Copy the logs of a run at the end, whatever happens, if it got as far as to have its folder."""
    copies = Copying(folder)
    try:
        yield copies
    finally:
        copies.end()


def wanted_by(hooks: Iterable[Any]) -> list[LogCopies]:
    """Return the copies that the hooks of a plan want."""
    found = [getattr(entry.hook, "log_copies", None) for entry in hooks]
    return [copies for copies in found if copies is not None]

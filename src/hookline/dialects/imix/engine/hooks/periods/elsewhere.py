"""Native writers whose files may be anywhere, not only in the run's folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hookline.errors import ConfigError
from hookline.writers.files import FileWriter, Record
from hookline.writers.jsonl import JsonlWriter
from hookline.writers.tensorboard import TensorboardWriter


def check_path(what: str, given: Any, *, of_file: bool) -> None:
    """Refuse a value that cannot be the path of a file (`of_file=True`) or of a folder."""
    right = isinstance(given, (str, os.PathLike)) and bool(os.fspath(given))
    if not right or (of_file and Path(given).name in ("", "..")):
        raise ConfigError(f"{what} must be a path, or a bare name for a place in work_dir, not {given!r}")


def resolve_path(given: str | os.PathLike[str], work_dir: Path) -> Path:
    """Return the path as given; a bare name is a file or folder in the run's folder."""
    path = Path(given)
    return work_dir / path if path.name == str(path) else path


class AnywhereWriter(FileWriter):
    """A writer whose file or folder is at a given path."""

    place: Path
    work_dir: Path

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """Begin in the folder of the given path."""
        self.place.parent.mkdir(parents=True, exist_ok=True)
        super().begin(self.place.parent, experiment_name)

    def files(self) -> Iterable[str]:
        """Return the files to archive before a fresh run: none outside the run's folder, which may belong to others."""
        place, folder = self.place.resolve(), self.work_dir.resolve()
        return [str(place.relative_to(folder))] if place.is_relative_to(folder) else []


class JsonLinesWriter(AnywhereWriter, JsonlWriter):
    """A writer of one line of JSON per record, with sorted keys."""

    told_as = "JSONLoggerHook"
    label = "json_file"

    def __init__(self, path: Path, work_dir: Path) -> None:
        super().__init__(path.name)
        self.place, self.work_dir = path, work_dir

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """Write one record."""
        record = dict(sorted({"iteration": step, **scalars}.items()))
        self.add(Record(self.as_bytes(record), (scalars, step)))


class EventFileWriter(AnywhereWriter, TensorboardWriter):
    """A writer of TensorBoard event files in the subfolder `runs` of a given folder."""

    told_as = "TensorboardLoggerHook"
    label = "log_dir"

    def __init__(self, path: Path, work_dir: Path) -> None:
        super().__init__("runs")
        self.place, self.work_dir = path / "runs", work_dir

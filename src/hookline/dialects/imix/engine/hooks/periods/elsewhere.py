"""Native writers whose files lie where the user says, and not only in the run's folder."""

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
    """Refuse what cannot be the path of a file, or of a folder."""
    right = isinstance(given, (str, os.PathLike)) and bool(os.fspath(given))
    if not right or (of_file and Path(given).name in ("", "..")):
        raise ConfigError(f"{what} is a path, or just a name in work_dir, not {given!r}")


def place(given: str | os.PathLike[str], work_dir: Path) -> Path:
    """A path as it was given; just a name is one in the run's folder."""
    path = Path(given)
    return work_dir / path if path.name == str(path) else path


class Elsewhere(FileWriter):
    """A writer of a file or a folder at a given place."""

    place: Path
    work_dir: Path

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """Take it up where it is."""
        self.place.parent.mkdir(parents=True, exist_ok=True)
        super().begin(self.place.parent, experiment_name)

    def files(self) -> Iterable[str]:
        """What makes way for a fresh run; a place outside of the run's folder may be that of others, and is left."""
        place, folder = self.place.resolve(), self.work_dir.resolve()
        return [str(place.relative_to(folder))] if place.is_relative_to(folder) else []


class Lines(Elsewhere, JsonlWriter):
    """A line of JSON a record, its keys sorted."""

    told_as = "JSONLoggerHook"
    label = "json_file"

    def __init__(self, at: Path, work_dir: Path) -> None:
        super().__init__(at.name)
        self.place, self.work_dir = at, work_dir

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """One record."""
        record = dict(sorted({"iteration": step, **scalars}.items()))
        self.add(Record(self.as_bytes(record), (scalars, step)))


class Events(Elsewhere, TensorboardWriter):
    """Event files in the folder `runs` of a folder."""

    told_as = "TensorboardLoggerHook"
    label = "log_dir"

    def __init__(self, at: Path, work_dir: Path) -> None:
        super().__init__("runs")
        self.place, self.work_dir = at / "runs", work_dir

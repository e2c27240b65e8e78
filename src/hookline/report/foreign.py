"""Records that hookline did not write, or not as metrics.jsonl: lines of JSON, CSV, and TensorBoard's event files.

    logs/metrics.csv                      loss, val_loss, ...
    logs/train/events.out.tfevents.1...   train/loss, ...
    logs/validation/events.out...         validation/loss, ...

If the files of a run are in several folders, the name of the folder comes before the name of a metric. A folder with
several runs has their folders inside, and no such files itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hookline.common.files import regular
from hookline.report.event_files import read_events
from hookline.report.names import STAGES
from hookline.report.records import MOST_NAMES, Columns, as_record, read_lines, read_table

if TYPE_CHECKING:
    from hookline.report.images import Images

Kind = Literal["JSONL", "CSV", "TensorBoard"]

#: How deep, and how many files: a folder of a data set may be given by mistake.
DEEPEST, MOST_FILES, MOST_ENTRIES = 4, 500, 20_000
#: Files of a run that are read elsewhere, and folders that hold other things.
OWN = frozenset({"metrics.jsonl", "images.jsonl", "events.jsonl", "control.jsonl"})
SKIPPED = frozenset({"wandb", "mlruns", "node_modules", "__pycache__"})


@dataclass(frozen=True)
class Source:
    """A file with records."""

    path: Path
    kind: Kind


def find_sources(folder: Path) -> list[Source]:
    """Return the files with records in a folder and the folders inside, sorted by name."""
    found = []
    for path in _files_in(folder):
        kind = _kind_of(path)
        if kind is not None:
            found.append(Source(path, kind))
            if len(found) >= MOST_FILES:
                break
    return found


def find_other_runs(folder: Path) -> list[Path]:
    """Return the folders of runs of other programs in a folder, which may be one itself.

    A folder with records is a run, and so are the folders inside: `train` and `validation` belong to the run around.
    """
    places = set()
    for path in _files_in(folder):
        place = path.parent
        if place not in places and _kind_of(path) is not None:
            places.add(place)
    runs = set()
    for place in places:
        while place != folder and place.name.lower() in STAGES:
            place = place.parent
        runs.add(place)
    return sorted(run for run in runs if not any(parent in runs for parent in run.parents))


def find_own_sources(folder: Path) -> list[Source]:
    """Return the files that writers of a run left in its folder, besides metrics.jsonl. The rest may be the user's."""
    found = [path for path in sorted(folder.glob("*")) if path.suffix in (".csv", ".jsonl") and path.name not in OWN]
    found += sorted(folder.glob("*/events.out.tfevents.*"))
    return [Source(path, kind) for path in found if path.is_file() and (kind := _kind_of(path)) is not None]


def _files_in(folder: Path) -> Iterator[Path]:
    seen, top = 0, len(folder.parts)
    for place, folders, files in os.walk(folder):
        here = Path(place)
        deep = len(here.parts) - top >= DEEPEST
        folders[:] = (
            []
            if deep
            else sorted(each for each in folders if not each.startswith((".", "old-")) and each not in SKIPPED)
        )
        yield from (here / name for name in sorted(files) if not name.startswith("."))
        seen += len(files) + len(folders)
        if seen > MOST_ENTRIES:
            return


def _kind_of(path: Path) -> Kind | None:
    if "tfevents" in path.name:
        return "TensorBoard"
    if path.suffix in (".csv", ".tsv"):
        return "CSV"
    if path.suffix in (".jsonl", ".ndjson") or (path.suffix == ".json" and _has_lines(path)):
        return "JSONL"
    return None


def _has_lines(path: Path) -> bool:
    """Return whether the first line of a JSON file is a complete record."""
    import json

    try:
        with open(path, "rb", opener=regular) as file:
            found = json.loads(file.readline(1 << 20))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "step" in found and as_record(found, 0) is not None


def read_sources(sources: list[Source], folder: Path, images: Images, exact: int = 0) -> tuple[Columns, list[str]]:
    """Return the curves of all files, and lines about files that could not be read.

    A metric that an earlier file has is not read again: people often log the same numbers in two ways.
    """
    together, problems = Columns(), []
    places = {source.path.parent for source in sources}
    groups: dict[tuple[Path, Kind], list[Source]] = {}
    for source in sources:
        groups.setdefault((source.path.parent, source.kind), []).append(source)
    for (place, kind), members in groups.items():
        columns = Columns(exact)
        prefix = "" if len(places) == 1 or place == folder else f"{place.relative_to(folder).as_posix()}/"
        for source in members:
            try:
                _read(source, columns, images, prefix)
            except (OSError, UnicodeError) as error:
                problems.append(f"{source.path} cannot be read: {getattr(error, 'strerror', None) or error}")
        columns.finish()
        if columns.bad_lines:
            problems.append(f"{columns.bad_lines} lines of the {kind} files in {place} are not records")
        for name, curve in columns.curves.items():
            if len(together.curves) < MOST_NAMES:
                together.curves.setdefault(f"{prefix}{name}", curve)
            else:
                together.has_more_names = True
        together.has_more_names = together.has_more_names or columns.has_more_names
        together.steps = max(together.steps, columns.steps)
        together.epochs = max(together.epochs, columns.epochs)
        together.records += columns.records
    return together, problems


def _read(source: Source, columns: Columns, images: Images, prefix: str) -> None:
    if source.kind == "JSONL":
        read_lines(source.path, columns)
    elif source.kind == "CSV":
        read_table(source.path, columns)
    else:
        for event in read_events(source.path):
            if event.number is not None:
                columns.add({"step": event.step, event.tag: event.number})
            elif event.image is not None:
                images.add(prefix + event.tag, event.step, event.image)

"""Reading records one after the other: lines of JSON, rows of CSV. A file of any size takes little memory.

A page is more useful than a refusal, so a line that is not a record is counted and left out. `hookline.runs` is strict.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from hookline.common.files import regular
from hookline.common.numbers import is_finite
from hookline.report.downsample import Curve
from hookline.report.names import place_of

#: At most this many records are turned into columns at once.
CHUNK = 4096
#: The longest line of a file, and the most that is read at once, in bytes.
LONGEST, MOST_AT_ONCE = 1 << 20, 1 << 24
#: The names that other programs give to the step of a record, the most reliable first.
STEPS = ("step", "global_step", "_step", "iteration", "iter", "Step", "steps", "epoch")
#: Entries of a record that are not metrics.
POSITIONS = frozenset({*STEPS, "time", "timestamp", "_timestamp", "_runtime", "wall_time", "Wall time"}) - {"time"}
#: Groups of metrics in a record may be nested this deep.
DEEPEST = 4
#: Metrics with more names than this are left out: a file with a new name in every line has no curves.
MOST_NAMES = 5000
#: The most numbers that wait to be turned into columns.
MOST_VALUES = 1 << 20
_NUMBERS = frozenset({int, float, type(None)})
_LARGEST = 1 << 53


class Columns:
    """The curves of all metrics of a run, filled from records. Losses keep their first `exact` values as they are."""

    def __init__(self, exact: int = 0) -> None:
        self._exact = exact
        self.curves: dict[str, Curve] = {}
        #: The greatest step and epoch so far.
        self.steps = 0
        self.epochs = 0
        self.records = 0
        #: The number of lines that were not records, and the line number of the first one.
        self.bad_lines = 0
        self.first_bad = 0
        #: True if there were too many names.
        self.has_more_names = False
        self._chunk: list[dict[str, Any]] = []
        self._values = 0

    def add(self, record: dict[str, Any]) -> None:
        """Add one record: numbers by name, with `step` among them."""
        if len(record) > 2 * MOST_NAMES:
            self.has_more_names = True
            record = {"step": record["step"], **dict(islice(record.items(), 2 * MOST_NAMES))}
        self._chunk.append(record)
        self._values += len(record)
        if len(self._chunk) >= CHUNK or self._values >= MOST_VALUES:
            self.finish()

    def note_bad(self, number: int) -> None:
        """Count a line that is not a record."""
        self.first_bad = self.first_bad or number
        self.bad_lines += 1

    def finish(self) -> Columns:
        """Turn the records so far into columns."""
        chunk, self._chunk, self._values = self._chunk, [], 0
        groups: dict[tuple[str, ...], list[int]] = {}
        for row, record in enumerate(chunk):
            groups.setdefault(tuple(record), []).append(row)
        found: dict[str, list[tuple[Any, Any]]] = {}
        for names, rows in groups.items():
            table = _as_table([chunk[row] for row in rows], len(names))
            for number, name in enumerate(names):
                found.setdefault(name, []).append((np.array(rows), table[:, number]))
        if chunk:
            self._add_columns(found, len(chunk))
        return self

    def _add_columns(self, found: Mapping[str, list[tuple[Any, Any]]], count: int) -> None:
        steps = np.zeros(count, np.int64)
        for rows, values in found["step"]:
            steps[rows] = values
        self.records += count
        self.steps = max(self.steps, int(steps.max()))
        for name, parts in found.items():
            if name != "epoch" and not self._has_room(name):
                continue
            rows = np.concatenate([each for each, _ in parts])
            values = np.concatenate([each for _, each in parts])
            if len(parts) > 1:
                order = np.argsort(rows, kind="stable")
                rows, values = rows[order], values[order]
            if name == "epoch":
                self.epochs = max(self.epochs, int(np.max(values[np.abs(values) < _LARGEST], initial=0)))
                continue
            if name not in self.curves:
                self.curves[name] = Curve(self._exact if place_of(name).kind == "loss" else 0)
            self.curves[name].add(steps[rows], values)

    def _has_room(self, name: str) -> bool:
        """Return whether a name becomes a curve: it is a metric, and there are not too many of them."""
        if name in self.curves or name in POSITIONS:
            return name in self.curves
        self.has_more_names = self.has_more_names or len(self.curves) >= MOST_NAMES
        return len(self.curves) < MOST_NAMES


def _as_table(records: list[dict[str, Any]], width: int) -> Any:
    """Return the numbers of records with the same names, one row each."""
    try:
        return np.array([list(record.values()) for record in records], np.float64).reshape(len(records), width)
    except OverflowError:  # an int beyond all floats
        rows = [[_as_float(value) for value in record.values()] for record in records]
        return np.array(rows, np.float64).reshape(len(records), width)


def _as_float(value: Any) -> float:
    try:
        return math.nan if value is None else float(value)
    except OverflowError:
        return math.nan


def read_lines(path: Path, columns: Columns) -> None:
    """Read a file with one JSON object per line into columns. A last line that is still being written is ignored."""
    number = 0
    with open(path, "rb", opener=regular) as file:
        for lines in _chunks(file):
            for offset, record in enumerate(_parsed(lines), 1):
                plain = as_record(record, number + offset) if isinstance(record, dict) else None
                if plain is not None:
                    columns.add(plain)
                elif lines[offset - 1].endswith(b"\n") and lines[offset - 1].strip():
                    columns.note_bad(number + offset)
            number += len(lines)
    columns.finish()


def _chunks(file: IO[bytes]) -> Iterator[list[bytes]]:
    """Yield lines, some at once. A line that is longer than any record takes no memory; it becomes an empty object."""
    chunk: list[bytes] = []
    size = 0
    read = partial(file.readline, LONGEST)
    for line in iter(read, b""):
        if len(line) == LONGEST and not line.endswith(b"\n"):
            while (rest := read()) and not rest.endswith(b"\n"):
                pass
            line = b"{}\n"
        chunk.append(line)
        size += len(line)
        if len(chunk) == CHUNK or size > MOST_AT_ONCE:
            yield chunk
            chunk, size = [], 0
    yield chunk


def _parsed(lines: list[bytes]) -> list[Any]:
    """Return the objects of lines, with None for a line that is not JSON. All at once is faster, and usually works."""
    try:
        found = json.loads(b"[" + b",".join(lines) + b"]")
        if len(found) == len(lines):
            return list(found)
    except (ValueError, RecursionError):
        pass
    return [_parse(line) for line in lines]


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def as_record(found: Mapping[str, Any], number: int) -> dict[str, Any] | None:
    """Return the numbers of an object, with its step: the step it names, or else the number of its line.

    None if it has no numbers at all.

    >>> as_record({"global_step": 5, "train": {"loss": 1.5}, "note": "x"}, 1)
    {'step': 5, 'train/loss': 1.5}
    """
    if _NUMBERS.issuperset(map(type, found.values())) and type(step := found.get("step")) is int:
        return dict(found) if abs(step) < _LARGEST else None
    record = dict(_numbers(found))
    given = next((record[name] for name in STEPS if record.get(name) is not None), number)
    if not record or not is_finite(given) or abs(given) >= _LARGEST:
        return None
    record.pop("step", None)
    return {"step": int(given), **{name: value for name, value in record.items() if name not in POSITIONS - {"epoch"}}}


def _numbers(found: Mapping[str, Any], prefix: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    for name, value in found.items():
        if isinstance(value, dict) and depth < DEEPEST:
            yield from _numbers(value, f"{prefix}{name}/", depth + 1)
        elif value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
            yield f"{prefix}{name}", value


def read_table(path: Path, columns: Columns) -> None:
    """Read a CSV file with names in its first row into columns. Cells that are not numbers are left out."""
    with open(path, encoding="utf-8-sig", errors="replace", newline="", opener=regular) as file:
        sample = file.read(4096)
        file.seek(0)
        delimiter = max(",;\t", key=sample.partition("\n")[0].count)
        rows = csv.reader(_text_lines(file, delimiter), delimiter=delimiter)
        readable = _readable(rows)
        names = next(readable, [])
        columns.has_more_names = len(names) > 2 * MOST_NAMES
        for number, row in enumerate(readable, 1):
            cells = zip(names[: 2 * MOST_NAMES], row, strict=False)
            found = {name: _as_cell(cell) for name, cell in cells if cell.strip()}
            record = as_record({name: value for name, value in found.items() if value is not None}, number)
            if record is not None:
                columns.add(record)
            elif row:
                columns.note_bad(number + 1)
    columns.finish()


def _text_lines(file: IO[str], delimiter: str) -> Iterator[str]:
    """Yield the lines of a CSV file without NUL, which the csv module refuses. A line that is too long is cut."""
    read = partial(file.readline, LONGEST)
    for line in iter(read, ""):
        if len(line) == LONGEST and not line.endswith("\n"):
            while (rest := read()) and not rest.endswith("\n"):
                pass
            line = line.rpartition(delimiter)[0] + "\n"  # without the cell that has lost its end
        yield line.replace("\0", "")


def _readable(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield rows up to one that the csv module refuses: a cell without an end."""
    try:
        yield from rows
    except csv.Error:
        return


def _as_cell(text: str) -> float | int | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if math.isfinite(value) and value == int(value) and abs(value) < _LARGEST else value

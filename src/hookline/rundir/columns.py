"""The records of a run as columns: `metrics.jsonl` read back, a numpy array a name.

    metrics["val/accuracy"]           array([nan, 0.93, nan, 0.96]): one number a record, NaN where it has none
    metrics.series("val/accuracy")    (array([17, 34]), array([0.93, 0.96])): without the gaps

A record that is read is checked: a step, maybe an epoch, and numbers; null stands for NaN and Inf.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline.errors import ConfigError, StorageError, did_you_mean

#: What a record has besides its numbers.
PLACES = ("step", "epoch")

#: What a column of ints cannot hold.
LARGE = 1 << 63

Array = NDArray[Any]


class UnknownMetricError(ConfigError, KeyError):
    """A name that no record has; also a KeyError, as of any mapping."""

    __str__ = Exception.__str__  # that of a KeyError would put quotes around the message


class Metrics(Mapping[str, Array]):
    """What a run has recorded: a mapping of `step`, `epoch` and every metric to a column, a row a record.

    Several records of one step (of training and of validation) are rows of their own, in the order of the file. A
    column is made when it is asked for, and is the caller's own.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]] = (), source: str = "metrics") -> None:
        self._source = source
        #: For every name, the rows that have it, and what they say.
        self._cells: dict[str, tuple[list[int], list[Any]]] = {name: ([], []) for name in PLACES}
        self._rows = 0
        for record in records:
            for name, value in record.items():
                rows, values = self._cells.setdefault(name, ([], []))
                rows.append(self._rows)
                values.append(value)
            self._rows += 1

    @property
    def names(self) -> list[str]:
        """The metrics, in the order in which they first came."""
        return [name for name in self._cells if name not in PLACES]

    @property
    def rows(self) -> int:
        """How many records there are."""
        return self._rows

    def __getitem__(self, name: str) -> Array:
        rows, values = self._known(name)
        if name in PLACES and len(rows) == self._rows and all(isinstance(value, int) for value in values):
            return np.array(values, dtype=np.int64)
        column = np.full(self._rows, np.nan)
        column[rows] = np.array(values, dtype=np.float64)  # None is NaN
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def series(self, name: str) -> tuple[Array, Array]:
        """The steps at which a metric was recorded, and its values there.

        A value that was NaN or Inf is NaN here: it was recorded, so it is no gap.
        """
        rows, values = self._known(name)
        return self["step"][rows], np.array(values, dtype=np.float64)

    def steps(self, name: str) -> Array:
        """The steps at which a metric was recorded."""
        return self.series(name)[0]

    def to_pandas(self) -> Any:
        """The columns as a DataFrame of pandas."""
        return _library("pandas").DataFrame(dict(self))

    def to_polars(self) -> Any:
        """The columns as a DataFrame of polars."""
        return _library("polars").DataFrame(dict(self))

    def __repr__(self) -> str:
        return f"<{self._source}: {self._rows} records of {', '.join(self.names) or 'nothing'}>"

    def _known(self, name: str) -> tuple[list[int], list[Any]]:
        if name not in self._cells:
            inner = [known for known in self.names if known.endswith(f"/{name}")]
            hint = f"did you mean '{inner[0]}'?" if inner else did_you_mean(name, self.names)
            raise UnknownMetricError(f"{self._source}: nothing is recorded as '{name}'; {hint}")
        return self._cells[name]


def read(path: Path) -> Metrics:
    """The records of a file; a file that is not there has none, and a last line that is still being written is left."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return Metrics(source=str(path))
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
    return Metrics(_records(lines, path), str(path))


def _records(lines: list[bytes], path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        record = _record(line)
        if record is not None:
            yield record
        elif number < len(lines):  # what follows the last line break may be half a record
            raise StorageError(
                f"{path}:{number}: this is no record: {_shortened(line)}; a record is a line of JSON with a step and "
                'numbers, as {"step": 120, "train/loss": 0.41}'
            )


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("step"), int) or isinstance(found["step"], bool):
        return None
    if abs(found["step"]) >= LARGE or not all(
        value is None or isinstance(value, (int, float)) for value in found.values()
    ):
        return None
    return {name: _bounded(value) for name, value in found.items()}


def _bounded(value: Any) -> Any:
    """An int that no column of ints can hold, as a float."""
    if not isinstance(value, int) or abs(value) < LARGE:
        return value
    try:
        return float(value)
    except OverflowError:
        return None


def _shortened(line: bytes, longest: int = 60) -> str:
    text = line.decode("utf-8", "replace")
    return repr(text) if len(text) <= longest else f"{text[:longest]!r}..."


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"{name} is not installed; pip install 'hookline[{name}]'") from error

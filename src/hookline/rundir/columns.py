"""The records of a run as columns: `metrics.jsonl` read back, with one numpy array per name.

    metrics["val/accuracy"]           array([nan, 0.93, nan, 0.96]): one number per record, NaN where it has none
    metrics.series("val/accuracy")    (array([17, 34]), array([0.93, 0.96])): without the gaps

Every record is checked when it is read. It must have a step and may have an epoch; the other values are numbers, with
null for NaN and Inf.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline.common.escape import escaped
from hookline.common.files import regular
from hookline.errors import ConfigError, StorageError, did_you_mean

#: The entries of a record that say when it was recorded; all others are metrics.
POSITION_KEYS = ("step", "epoch")

#: The smallest positive int that does not fit into an int64 column.
INT64_LIMIT = 1 << 63

Array = NDArray[Any]


class UnknownMetricError(ConfigError, KeyError):
    """Raised for a name that is in no record. It is also a KeyError, as for any mapping."""

    __str__ = Exception.__str__  # KeyError would put quotes around the message


class Metrics(Mapping[str, Array]):
    """The metrics of a run: a mapping of `step`, `epoch` and every metric to a column with one row per record.

    Several records of the same step (training and validation) are separate rows, in the order of the file. Every
    access builds a new column, so callers may modify it.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]] = (), source: str = "metrics") -> None:
        self._source = source
        #: For every name, the rows that have it and their values.
        self._cells: dict[str, tuple[list[int], list[Any]]] = {name: ([], []) for name in POSITION_KEYS}
        self._rows = 0
        for record in records:
            for name, value in record.items():
                rows, values = self._cells.setdefault(name, ([], []))
                rows.append(self._rows)
                values.append(value)
            self._rows += 1

    @property
    def names(self) -> list[str]:
        """Return the names of the metrics, in the order of their first record."""
        return [name for name in self._cells if name not in POSITION_KEYS]

    @property
    def rows(self) -> int:
        """Return the number of records."""
        return self._rows

    def __getitem__(self, name: str) -> Array:
        rows, values = self._find(name)
        if name in POSITION_KEYS and len(rows) == self._rows and all(isinstance(value, int) for value in values):
            return np.array(values, dtype=np.int64)
        column = np.full(self._rows, np.nan)
        column[rows] = np.array(values, dtype=np.float64)  # numpy turns None into NaN
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def series(self, name: str) -> tuple[Array, Array]:
        """Return the steps at which a metric was recorded, and its values.

        A recorded NaN or Inf appears as NaN. It is not left out, because it was recorded.
        """
        rows, values = self._find(name)
        return self["step"][rows], np.array(values, dtype=np.float64)

    def steps(self, name: str) -> Array:
        """Return the steps at which a metric was recorded."""
        return self.series(name)[0]

    def to_pandas(self) -> Any:
        """Return the columns as a pandas DataFrame."""
        return _library("pandas").DataFrame(dict(self))

    def to_polars(self) -> Any:
        """Return the columns as a polars DataFrame."""
        return _library("polars").DataFrame(dict(self))

    def __repr__(self) -> str:
        return f"<{escaped(self._source)}: {self._rows} records of {', '.join(map(escaped, self.names)) or 'nothing'}>"

    def _find(self, name: str) -> tuple[list[int], list[Any]]:
        if name not in self._cells:
            inner = [known for known in self.names if known.endswith(f"/{name}")]
            hint = f"did you mean '{inner[0]}'?" if inner else did_you_mean(name, self.names)
            raise UnknownMetricError(f"{self._source}: unknown metric '{name}'; {hint}")
        return self._cells[name]


def read(path: Path) -> Metrics:
    """Return the records of a file.

    A missing file has no records. A last line that is still being written is ignored.
    """
    try:
        with open(path, "rb", opener=regular) as file:
            lines = file.read().split(b"\n")
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
        elif number < len(lines):  # the text after the last line break may be half a record
            raise StorageError(
                f"{path}:{number}: not a record: {_shorten(line)}; a record is one line of JSON with a step and "
                'numbers, such as {"step": 120, "train/loss": 0.41}'
            )


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("step"), int) or isinstance(record["step"], bool):
        return None
    if abs(record["step"]) >= INT64_LIMIT or not all(
        value is None or isinstance(value, (int, float)) for value in record.values()
    ):
        return None
    return {name: _convert_large_int(value) for name, value in record.items()}


def _convert_large_int(value: Any) -> Any:
    """Return an int that does not fit into an int64 column as a float; None if it is too large for that as well."""
    if not isinstance(value, int) or abs(value) < INT64_LIMIT:
        return value
    try:
        return float(value)
    except OverflowError:
        return None


def _shorten(line: bytes, longest: int = 60) -> str:
    text = line.decode("utf-8", "replace")
    return repr(text) if len(text) <= longest else f"{text[:longest]!r}..."


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"{name} is not installed; install it with: pip install 'hookline[{name}]'") from error

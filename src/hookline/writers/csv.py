"""CsvWriter: metrics.csv with one row per record and one column for every name seen so far."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

from hookline.common.files import owned, replacing
from hookline.writers.files import Record, RecordWriter, appending, warn_if_shorter

# The beginnings that a spreadsheet takes for a formula, also after quotes, so that no two names are written alike.
FORMULA = re.compile("'*[=+\\-@\t\r\n\0＝＋－＠]")


class CsvWriter(RecordWriter):
    """Writes one row per logged step, at most a quarter of a second later.

    The first column is `step`. The others follow in the order in which their names first appear. A new name adds a
    column: the whole file is written again, and replaces the old one once it is complete. A cell is empty where a
    record has no such number. A name that a spreadsheet would run as a formula is written with a quote before it.

    Args:
        filename: The file in the run's folder.
    """

    default_files = ("metrics.csv",)

    def __init__(self, filename: str = "metrics.csv") -> None:
        super().__init__(filename)
        #: All columns that records have so far, and how many of them are in the file.
        self._columns: dict[str, None] = {}
        self._columns_in_file = 0

    def _open(self, path: Path) -> None:
        """Continue after the last complete row of the file, if it exists."""
        self._replace(path, *read_rows(path))

    def as_bytes(self, record: dict[str, float]) -> bytes:
        """Return the record as one row."""
        if new := [name for name in record if name not in self._columns]:
            encode_rows([new])  # fails for a name that cannot be written, before it becomes a column
            self._columns.update(dict.fromkeys(new))
        cells = [str(record[name]) if name in record else "" for name in self._columns]
        return (",".join(cells) + "\n").encode()  # numbers need no quoting

    def _prepare_file(self) -> FileIO:
        """Add new columns and return the file. If the disk is full, the file stays unchanged and the rows wait."""
        if self._file is None or self._columns_in_file < len(self._columns):
            assert self._path is not None, "begin() sets the path"
            self._replace(self._path, list(self._columns), read_rows(self._path)[1])
            again = [record.source for record in self._waiting if record.source is not None]
            self.drop_waiting()
            for scalars, step in again:
                row = Record(self.as_bytes({"step": step, **scalars}), (scalars, step))
                self._waiting.append(row)
                self._waiting_bytes += len(row.data)
        return super()._prepare_file()

    def _replace(self, path: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Replace the file with one that has these columns and rows; without columns, remove it."""
        if columns:
            cells = [[*map(as_text, row), *[""] * (len(columns) - len(row))] for row in rows]
            complete = encode_rows([[*map(as_name, columns)], *cells])
            with replacing(path) as fresh:
                fresh.write(complete)
        else:
            path.unlink(missing_ok=True)
        self._close()
        self._file = appending(path) if columns else None
        self._columns, self._columns_in_file, self._written = dict.fromkeys(columns), len(columns), len(rows)

    def state_dict(self) -> dict[str, Any]:
        """Return the number of rows, not bytes, because new columns make rows longer; and the rows that still wait."""
        if self._path is None:
            return {}
        self.flush()
        return {"rows": self._written, "columns": self._columns_in_file, **self.unwritten()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remove the rows and columns that were added after the checkpoint."""
        assert self._path is not None, "begin() sets the path"
        header, rows = read_rows(self._path)
        columns, kept = header[: state.get("columns", 0)], rows[: state.get("rows", 0)]
        self._replace(self._path, columns, [row[: len(columns)] for row in kept])
        self.drop_waiting()
        warn_if_shorter(self._path, len(rows), state.get("rows", 0), "rows")


def read_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a file, without a last row that a kill left incomplete."""
    try:
        with open(path, "rb", opener=owned) as file:
            text = file.read().decode()
    except FileNotFoundError:
        return [], []
    whole = list(csv.reader(io.StringIO(text[: text.rfind("\n") + 1], newline="")))
    return ([from_text(cell) for cell in whole[0]], whole[1:]) if whole else ([], [])


def as_text(cell: str) -> str:
    """Return the text of a cell below the names. Numbers stay as they are.

    >>> [as_text(cell) for cell in ("-0.5", "-inf", "-x")]
    ['-0.5', '-inf', "'-x"]
    """
    return cell if _is_number(cell) else as_name(cell)


def as_name(cell: str) -> str:
    """Return the text of a name, with a quote before one that a spreadsheet would run, such as `+1`.

    >>> [as_name(cell) for cell in ("=1+1", "+1", "'@x", "'loss'")]
    ["'=1+1", "'+1", "''@x", "'loss'"]
    """
    return f"'{cell}" if FORMULA.match(cell) else cell


def from_text(cell: str) -> str:
    """Return the name that `as_name` has changed.

    >>> [from_text(cell) for cell in ("'=1+1", "''@x", "'loss'")]
    ['=1+1', "'@x", "'loss'"]
    """
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell[1:]) else cell


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return cell.isprintable()  # Python also accepts a line break around a number


def encode_rows(rows: Sequence[Sequence[str]]) -> bytes:
    """Return rows as CSV text."""
    return "".join(",".join(map(_quoted, row)) + "\n" for row in rows).encode()


def _quoted(cell: str) -> str:
    """Quote a cell where needed. Python's csv module reads a carriage return as the end of a row, but quotes none."""
    doubled = cell.replace('"', '""')
    return f'"{doubled}"' if re.search('[",\r\n]', cell) else cell

"""metrics.csv: a record a row, with a column for every name that has come up."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

from hookline.writers.files import Record, RecordWriter, appending, say_shorter


class CsvWriter(RecordWriter):
    """Every logged step as a row, in the file at most a quarter of a second later.

    The first column is `step`, the others come as their names do. A new name adds a column: the file is written anew,
    and takes the place of the old one when it is complete. Cells are empty where a record has no such number.

    Args:
        filename: The file in the run's folder.
    """

    default_files = ("metrics.csv",)

    def __init__(self, filename: str = "metrics.csv") -> None:
        super().__init__(filename)
        #: All columns that records have, and how many of them the file has already.
        self._columns: dict[str, None] = {}
        self._made = 0

    def _open(self, path: Path) -> None:
        """Go on after the last whole row of the file, if there is one."""
        self._replace(path, *read(path))

    def as_bytes(self, record: dict[str, float]) -> bytes:
        """One row."""
        if new := [name for name in record if name not in self._columns]:
            as_rows([new])  # a name that cannot be written is refused before it is a column
            self._columns.update(dict.fromkeys(new))
        cells = [str(record[name]) if name in record else "" for name in self._columns]
        return (",".join(cells) + "\n").encode()  # numbers need no quotes

    def _ready(self) -> FileIO:
        """Add columns that are new; when the disk is full, the file stays as it was, and the rows wait."""
        if self._file is None or self._made < len(self._columns):
            assert self._path is not None, "begin() says where"
            self._replace(self._path, list(self._columns), read(self._path)[1])
            again = [record.made_of for record in self._waiting if record.made_of is not None]
            self.forget()
            for scalars, step in again:
                row = Record(self.as_bytes({"step": step, **scalars}), (scalars, step))
                self._waiting.append(row)
                self._waiting_bytes += len(row.data)
        return super()._ready()

    def _replace(self, path: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Write all of the file anew, and put it in the place of the old one; without columns there is none."""
        if columns:
            complete = as_rows([columns, *([*row, *[""] * (len(columns) - len(row))] for row in rows)])
            fresh = path.with_name(path.name + ".new")
            try:
                fresh.write_bytes(complete)
                os.replace(fresh, path)
            except OSError:
                fresh.unlink(missing_ok=True)
                raise
        else:
            path.unlink(missing_ok=True)
        self._close()
        self._file = appending(path) if columns else None
        self._columns, self._made, self._written = dict.fromkeys(columns), len(columns), len(rows)

    def state_dict(self) -> dict[str, Any]:
        """How many rows there are, and those that still wait. How long rows are changes with the columns."""
        if self._path is None:
            return {}
        self.flush()
        return {"rows": self._written, "columns": self._made, **self.unwritten()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Cut off the rows and columns that came after the checkpoint."""
        assert self._path is not None, "begin() says where"
        header, rows = read(self._path)
        columns, kept = header[: state.get("columns", 0)], rows[: state.get("rows", 0)]
        self._replace(self._path, columns, [row[: len(columns)] for row in kept])
        self.forget()
        say_shorter(self._path, len(rows), state.get("rows", 0), "rows")


def read(path: Path) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a file; a row that a kill has cut in half is left out."""
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        return [], []
    whole = list(csv.reader(io.StringIO(text[: text.rfind("\n") + 1], newline="")))
    return (whole[0], whole[1:]) if whole else ([], [])


def as_rows(rows: Sequence[Sequence[Any]]) -> bytes:
    """Rows as text; numbers as Python writes them, so that none loses a digit."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()

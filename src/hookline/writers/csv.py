"""metrics.csv: a record a row, with a column for every name that has come up."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hookline.writers.append import AppendFile
from hookline.writers.files import RecordWriter


class CsvWriter(RecordWriter):
    """Every logged step as a row, in the file at most a quarter of a second later.

    The first column is `step`, the others come as their names do. A new name adds a column: the file is written anew,
    and takes the place of the old one when it is complete. Cells are empty where a record has no such number.

    Args:
        filename: The file in the run's folder.
    """

    def __init__(self, filename: str = "metrics.csv") -> None:
        super().__init__(filename)
        self._columns: list[str] = []
        self._rows = 0

    def _open(self, path: Path) -> None:
        """Go on after the last whole row of the file, if there is one."""
        self._columns, rows = read(path)
        self._rows = len(rows)
        if self._columns:
            self._replace(path, self._columns, rows)

    def _write(self, records: list[dict[str, float]]) -> None:
        known = set(self._columns)
        new = dict.fromkeys(name for record in records for name in record if name not in known)
        if new or self._file is None:
            self._widen(new)
        assert self._file is not None, "a file with these columns was made"
        self._file.write(as_rows([[record.get(name, "") for name in self._columns] for record in records]))
        self._rows += len(records)

    def _widen(self, new: Iterable[str]) -> None:
        """Add columns; when the disk is full, the file stays as it was, and the rows wait."""
        assert self._path is not None
        if self._file is not None:
            self._file.write(b"")
            if self._file.waiting:
                raise OSError("it has no room for another column")
        columns = [*self._columns, *new]
        self._replace(self._path, columns, read(self._path)[1])
        self._columns = columns

    def _replace(self, path: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Write all of the file anew, and put it in the place of the old one."""
        complete = as_rows([columns, *([*row, *[""] * (len(columns) - len(row))] for row in rows)])
        fresh = path.with_name(path.name + ".new")
        try:
            fresh.write_bytes(complete)
            os.replace(fresh, path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        self._close()
        self._file = AppendFile(path, self.limit)

    def state_dict(self) -> dict[str, Any]:
        """How many rows there are. How long they are changes with the columns."""
        if self._path is None:
            return {}
        self.flush()
        return {"rows": self._rows, "columns": len(self._columns)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Cut off the rows and columns that came after the checkpoint."""
        assert self._path is not None, "begin() says where"
        self.forget()
        header, rows = read(self._path)
        self._columns = header[: state["columns"]]
        self._rows = min(len(rows), state["rows"])
        if header:
            self._replace(self._path, self._columns, [row[: len(self._columns)] for row in rows[: self._rows]])


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

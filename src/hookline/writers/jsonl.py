"""metrics.jsonl: a record a line, `{"step": 120, "epoch": 2, "train/loss": 0.41}`."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hookline.errors import StorageError
from hookline.writers.files import Record, RecordWriter, appending, say_shorter

# How much of a file is read at once to find its last line break.
BLOCK = 64 << 10
# Made once: `json.dumps` makes one a call, which takes as long as the record.
ENCODER = json.JSONEncoder(allow_nan=False)


class JsonlWriter(RecordWriter):
    """Every logged step as one line of JSON, in the file at most a quarter of a second later. Images are left to other
    writers.

    Args:
        filename: The file in the run's folder.
    """

    limit = None

    default_files = ("metrics.jsonl",)

    def __init__(self, filename: str = "metrics.jsonl") -> None:
        super().__init__(filename)

    def _open(self, path: Path) -> None:
        """Go on after the last whole line, if there is one."""
        if path.exists():
            cut(path, path.stat().st_size)
        self._file = appending(path)

    def as_bytes(self, record: dict[str, float]) -> bytes:
        """One line of JSON. What JSON has no word for (NaN and Inf) is null."""
        try:
            text = ENCODER.encode(record)
        except ValueError:
            text = ENCODER.encode({name: value if math.isfinite(value) else None for name, value in record.items()})
        return text.encode() + b"\n"

    def state_dict(self) -> dict[str, Any]:
        """How many bytes are written: all of them are in the file when a checkpoint counts on it."""
        self.flush()
        if self._path is not None and self._waiting:
            raise StorageError(f"{self._path} cannot be written, and a checkpoint counts on its records")
        return {} if self._path is None else {"size": self.whole}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Cut off the lines that were written after the checkpoint, except for tests of it or of earlier ones."""
        assert self._path is not None, "begin() opens the file"
        assert self._file is not None
        self.forget()
        size = int(state.get("size", 0))
        say_shorter(self._path, self._path.stat().st_size, size, "bytes")
        tests = list(later_tests(self._path, size, int(state.get("iter", 0))))
        cut(self._path, size)
        self._file.seek(0, os.SEEK_END)
        for line in tests:
            self.add(Record(line))


def later_tests(path: Path, size: int, iteration: int) -> Iterator[bytes]:
    """The records of tests behind a size: training does not make them again. Those of later iterations are left out."""
    with open(path, "rb") as file:
        file.seek(size)
        for line in file:
            try:
                record = json.loads(line) if line.endswith(b"\n") else {}
            except ValueError:
                continue
            if any(name.startswith("test/") for name in record) and record["step"] <= iteration:
                yield line


def cut(path: Path, size: int) -> None:
    """Cut a file back to a size, and what is left of it to whole lines: a kill or a full disk may leave half a one."""
    with open(path, "r+b") as file:
        end = min(size, file.seek(0, os.SEEK_END))
        while end > 0:
            start = max(end - BLOCK, 0)
            file.seek(start)
            if at := file.read(end - start).rfind(b"\n") + 1:
                end = start + at
                break
            end = start
        file.truncate(end)

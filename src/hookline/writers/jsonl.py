"""metrics.jsonl: a record a line, `{"step": 120, "epoch": 2, "train/loss": 0.41}`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hookline.errors import StorageError
from hookline.writers.append import AppendFile
from hookline.writers.files import RecordWriter


class JsonlWriter(RecordWriter):
    """Every logged step as one line of JSON, in the file at most a quarter of a second later. Images are left to other
    writers.

    Args:
        filename: The file in the run's folder.
    """

    limit = None

    def __init__(self, filename: str = "metrics.jsonl") -> None:
        super().__init__(filename)

    def _open(self, path: Path) -> None:
        self._file = AppendFile(path)

    def _write(self, records: list[dict[str, Any]]) -> None:
        assert self._file is not None, "begin() opens the file"
        self._file.write(b"".join([as_line(record) for record in records]))

    def state_dict(self) -> dict[str, Any]:
        """How many bytes are written: all of them are in the file when a checkpoint counts on it."""
        self.flush()
        if self._file is not None and self._file.waiting:
            raise StorageError(f"{self._file.name} cannot be written, and a checkpoint counts on its records")
        return {} if self._file is None else {"size": self._file.size}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Cut off the lines that were written after the checkpoint."""
        assert self._file is not None, "begin() opens the file"
        self.forget()
        self._file.cut(state["size"])


def as_line(record: dict[str, Any]) -> bytes:
    """One line of JSON. What JSON has no word for (NaN and Inf) is null."""
    try:
        text = json.dumps(record, allow_nan=False)
    except ValueError:
        text = json.dumps({name: value if math.isfinite(value) else None for name, value in record.items()})
    return text.encode() + b"\n"

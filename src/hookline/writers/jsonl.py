"""JsonlWriter: metrics.jsonl with one record per line, `{"step": 120, "epoch": 2, "train/loss": 0.41}`."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hookline.common.files import is_at, owned
from hookline.errors import StorageError
from hookline.writers.files import LATENCY, Record, RecordWriter, appending, warn_if_shorter

# How many bytes of a file are read at once to find its last line break.
BLOCK = 64 << 10
NUMBERS = frozenset({int, float})
# Created once: `json.dumps` creates one per call, which takes as long as encoding the record.
ENCODER = json.JSONEncoder(allow_nan=False)


class JsonlWriter(RecordWriter):
    """Writes one line of JSON per logged step, at most a quarter of a second later. Ignores images.

    Args:
        filename: The file in the run's folder.
    """

    limit = None

    default_files = ("metrics.jsonl",)

    def __init__(self, filename: str = "metrics.jsonl") -> None:
        super().__init__(filename)
        #: Records that are not encoded yet: many at once take a fraction of the time of one now and then.
        self._plain: list[tuple[Mapping[str, float], int]] = []

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """Keep one record, which is encoded and written soon. Anything but numbers is encoded now: that may fail."""
        if not NUMBERS.issuperset(map(type, scalars.values())):
            self._encode_plain()
            super().write_scalars(scalars, step)
            return
        self._plain.append((scalars, step))
        if time.monotonic() - self._flushed > LATENCY:
            self.flush()

    def flush(self) -> None:
        """Encode and write all records that wait."""
        self._flushed = time.monotonic()
        self._encode_plain()
        super().flush()

    def _encode_plain(self) -> None:
        plain, self._plain = self._plain, []
        for scalars, step in plain:
            super().write_scalars(scalars, step)

    def drop_waiting(self) -> None:
        """Drop all waiting records."""
        self._plain.clear()
        super().drop_waiting()

    def _open(self, path: Path) -> None:
        """Continue after the last complete line, if the file exists."""
        if os.path.lexists(path):
            cut_back(path, sys.maxsize)
        self._file = appending(path)
        self._folder = os.stat(path.parent)

    def as_bytes(self, record: dict[str, float]) -> bytes:
        """Return the record as one line of JSON. NaN and Inf become null, because JSON does not have them."""
        try:
            text = ENCODER.encode(record)
        except ValueError:
            text = ENCODER.encode({name: value if math.isfinite(value) else None for name, value in record.items()})
        return text.encode() + b"\n"

    def state_dict(self) -> dict[str, Any]:
        """Return the size of the file. Raise StorageError if some records are not in it yet."""
        self.flush()
        if self._path is not None and self._waiting:
            raise StorageError(f"{self._path} cannot be written, and a checkpoint needs all records to be in it")
        self._refuse_removed()
        return {} if self._path is None else {"size": self.complete_size}

    def close(self) -> None:
        """Write all waiting records, and close the file. Raise StorageError if it was removed during the run."""
        try:
            self.flush()
            self._refuse_removed()
        finally:
            super().close()

    def _refuse_removed(self) -> None:
        """Raise StorageError if the file was removed. The run itself reports that its whole folder was."""
        path, file = self._path, self._file
        if path is None or file is None or is_at(path, file.fileno()) or not self._folder_is_there(path):
            return
        raise StorageError(
            f"{path} was deleted, moved or replaced during the run, so its records are lost; put it back if you have "
            "it, and continue with resume=True, or hookline train --resume"
        )

    def _folder_is_there(self, path: Path) -> bool:
        try:
            return os.path.samestat(os.stat(path.parent), self._folder)
        except OSError:
            return False

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remove the lines written after the checkpoint, but keep test results of it and of earlier checkpoints."""
        assert self._path is not None, "begin() opens the file"
        assert self._file is not None
        self.drop_waiting()
        size = int(state.get("size", 0))
        warn_if_shorter(self._path, os.path.getsize(self._path), size, "bytes")
        tests = list(later_tests(self._path, size, int(state.get("iter", 0))))
        cut_back(self._path, size)
        self._file.seek(0, os.SEEK_END)
        for line in tests:
            self.add(Record(line))


def later_tests(path: Path, size: int, iteration: int) -> Iterator[bytes]:
    """Yield test records beyond this size, up to this iteration: training would not write them again."""
    with open(path, "rb", opener=owned) as file:
        file.seek(size)
        for line in file:
            try:
                record = json.loads(line) if line.endswith(b"\n") else {}
            except ValueError:
                continue
            if any(name.startswith("test/") for name in record) and record["step"] <= iteration:
                yield line


def cut_back(path: Path, size: int) -> None:
    """Truncate a file to a size, and then to complete lines: a kill or a full disk may leave half a line."""
    with open(path, "r+b", opener=owned) as file:
        end = min(size, file.seek(0, os.SEEK_END))
        while end > 0:
            start = max(end - BLOCK, 0)
            file.seek(start)
            if at := file.read(end - start).rfind(b"\n") + 1:
                end = start + at
                break
            end = start
        file.truncate(end)

"""metrics.jsonl: a record a line, `{"step": 120, "epoch": 2, "train/loss": 0.41}`."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from hookline.errors import ConfigError, StorageError
from hookline.writers.base import Writer

log = logging.getLogger("hookline")

LATENCY = 0.25


class JsonlWriter(Writer):
    """Every logged step as one line of JSON, in the file at most a quarter of a second later. Images are left to other
    writers.

    Args:
        filename: The file in the run's folder.
    """

    keeps_images = False

    def __init__(self, filename: str = "metrics.jsonl") -> None:
        if filename in ("", "..") or "\0" in filename or Path(filename).name != filename:
            raise ConfigError(f"JsonlWriter: filename is the name of a file in the run's folder, not {filename!r}")
        self.filename = filename
        self._file: FileIO | None = None
        self._waiting: list[dict[str, Any]] = []
        self._unwritten = b""
        self._failing = False
        self._flushed = 0.0

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """Open the file, at its end."""
        self._file = open(work_dir / self.filename, "ab", buffering=0)  # noqa: SIM115  # closed in close()
        self._failing = False

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """One line."""
        self._waiting.append({"step": step, **scalars})
        if time.monotonic() - self._flushed > LATENCY:  # quick steps need not wait for each line to be made and written
            self.flush()

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """One line with one number."""
        self.write_scalars({name: value}, step)

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """Images are not kept here."""

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """The config stands in config.yaml beside this file."""

    def flush(self) -> None:
        """Write the lines that are waiting. A full disk does not end the run: they wait on, and it is said once."""
        self._flushed = time.monotonic()
        if self._file is None:
            return
        self._unwritten += b"".join([as_line(record) for record in self._waiting])
        self._waiting.clear()
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[self._file.write(self._unwritten) :]
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.warning("%s cannot be written: %s; it is tried again", self._file.name, error.strerror or error)
            self._failing = True

    def close(self) -> None:
        """Write what is waiting, and close the file."""
        if self._file is not None:
            self.flush()
            if self._unwritten:
                log.warning("%s lacks its last %d bytes of records", self._file.name, len(self._unwritten))
            self._file.close()
            self._file, self._unwritten = None, b""

    def state_dict(self) -> dict[str, Any]:
        """How many bytes are written: all of them are in the file when a checkpoint counts on it."""
        self.flush()
        if self._file is not None and self._unwritten:
            raise StorageError(f"{self._file.name} cannot be written, and a checkpoint counts on its records")
        return {} if self._file is None else {"size": self._file.tell()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Cut off the lines that were written after the checkpoint."""
        assert self._file is not None, "begin() opens the file"
        self.flush()
        self._file.truncate(min(state["size"], self._file.seek(0, os.SEEK_END)))
        self._file.seek(0, os.SEEK_END)


def as_line(record: dict[str, Any]) -> bytes:
    """One line of JSON. What JSON has no word for (NaN and Inf) is null."""
    try:
        text = json.dumps(record, allow_nan=False)
    except ValueError:
        text = json.dumps({name: value if math.isfinite(value) else None for name, value in record.items()})
    return text.encode() + b"\n"

"""metrics.jsonl: a record a line, `{"step": 120, "epoch": 2, "train/loss": 0.41}`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from hookline.writers.base import Writer

LATENCY = 0.25


class JsonlWriter(Writer):
    """Every logged step as one line of JSON, in the file at most a quarter of a second later. Images are left to other
    writers.

    Args:
        filename: The file in the run's folder.
    """

    def __init__(self, filename: str = "metrics.jsonl") -> None:
        self.filename = filename
        self._file: IO[bytes] | None = None
        self._flushed = 0.0

    def begin(self, work_dir: Path, experiment_name: str, state: Mapping[str, Any] | None) -> None:
        """Open the file; a resumed run first drops the lines that were written after its checkpoint."""
        path = work_dir / self.filename
        if state is not None and path.is_file():
            os.truncate(path, min(state.get("size", 0), path.stat().st_size))
        self._file = open(path, "ab")  # noqa: SIM115  # closed in close()

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """One line."""
        assert self._file is not None, "begin() opens the file"
        self._file.write(json.dumps({"step": step, **scalars}).encode() + b"\n")
        now = time.monotonic()
        if now - self._flushed > LATENCY:  # steps of a millisecond need not wait for the file system each time
            self._file.flush()
            self._flushed = now

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """One line with one number."""
        self.write_scalars({name: value}, step)

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """Images are not kept here."""

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """The config stands in config.yaml beside this file."""

    def flush(self) -> None:
        """Bring out what is still held back."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def state_dict(self) -> dict[str, Any]:
        """How many bytes are written: all of them are in the file when a checkpoint counts on it."""
        self.flush()
        return {} if self._file is None else {"size": self._file.tell()}

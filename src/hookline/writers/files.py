"""FileWriter: what writers of files share. Records gather for a quarter of a second, and are written together.

A full disk does not end a run: what it does not take waits, is tried again, and is saved with checkpoints.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from hookline.errors import ConfigError
from hookline.writers.base import Writer

log = logging.getLogger("hookline")

# How late a record may be in its file, in seconds: quick steps need not wait for each to be written.
LATENCY = 0.25
# How many bytes wait for a full disk, where they are bounded.
LIMIT = 64 << 20
# How many records are written at once, and how many of those that wait are saved with a checkpoint.
AT_ONCE, SAVED = 1000, 10_000


class Record(NamedTuple):
    """What is written in one piece, and the numbers and the step that it was made of, if it was."""

    data: bytes
    made_of: tuple[Mapping[str, float], int] | None = None


class FileWriter(Writer):
    """A writer of a file or a folder of files in the run's folder.

    A disk that is full, or a folder that is gone, does not end the run: records wait on, and it is said once.
    """

    cuts_back = True
    #: How many bytes of records wait at most; None for a writer that never loses any.
    limit: int | None = LIMIT
    #: What the parameter with its name is called.
    label = "filename"

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or name in ("", ".", "..") or "\0" in name or Path(name).name != name:
            what = f"{self.label} is the name of a {self.label.removesuffix('name')}"
            raise ConfigError(f"{type(self).__name__}: {what} in the run's folder, not {name!r}")
        self._name = name
        #: Where it is, while a run lasts, and the file that is written to, once there is one.
        self._path: Path | None = None
        self._file: FileIO | None = None
        #: What is not in the file yet, how many bytes that is, and how many bytes of the first are in it already.
        self._waiting: deque[Record] = deque()
        self._waiting_bytes = 0
        self._begun_bytes = 0
        #: How many whole records this writer has put into the file, and how many it could not keep.
        self._written = 0
        self._lost = 0
        self._flushed = 0.0
        self._failing = False

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """Take up the file."""
        self.close()
        self.forget()
        path = work_dir / self._name
        self._open(path)
        self._path, self._failing, self._lost = path, False, 0

    @abstractmethod
    def _open(self, path: Path) -> None:
        """Get ready to write there."""

    def _ready(self) -> FileIO:
        """The file, ready for what waits; OSError if that cannot be."""
        assert self._file is not None, "begin() opens the file"
        return self._file

    def add(self, record: Record) -> None:
        """Take a record, to be written soon."""
        size = len(record.data)
        if self._failing and self.limit is not None and self._waiting_bytes + size > self.limit:
            self._lost += 1
            return
        self._waiting.append(record)
        self._waiting_bytes += size
        if time.monotonic() - self._flushed > LATENCY:
            self.flush()

    def flush(self) -> None:
        """Write what has gathered, and what a full disk did not take before."""
        self._flushed = time.monotonic()
        if self._path is None:
            return
        try:
            if self._waiting:
                self._write(self._ready())
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.warning("%s cannot be written: %s; it is tried again", self._path, error.strerror or error)
            self._failing = True

    def _write(self, file: FileIO) -> None:
        while self._waiting:
            together = b"".join([record.data for record in islice(self._waiting, AT_ONCE)])
            self._begun_bytes += file.write(together[self._begun_bytes :])
            while self._waiting and self._begun_bytes >= len(self._waiting[0].data):
                size = len(self._waiting.popleft().data)
                self._begun_bytes -= size
                self._waiting_bytes -= size
                self._written += 1

    @property
    def whole(self) -> int:
        """How long the file is, up to the end of its last whole record."""
        return self._file.tell() - self._begun_bytes if self._file is not None else 0

    def unwritten(self) -> dict[str, Any]:
        """The numbers that wait, as part of a state; nothing if none do."""
        numbers = ([*record.made_of] for record in self._waiting if record.made_of is not None)
        found = list(islice(numbers, SAVED))
        return {"waiting": found} if found else {}

    def forget(self) -> None:
        """Drop what waits."""
        self._waiting.clear()
        self._waiting_bytes = self._begun_bytes = 0

    def close(self) -> None:
        """Write what has gathered, and close the file."""
        if self._path is not None:
            self.flush()
            if lost := self._lost + len(self._waiting):
                log.warning("%s lacks its last %d records", self._path, lost)
            self.forget()
            self._close()
            self._path = None

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def files(self) -> Iterable[str]:
        """The one file or folder."""
        return [self._name]


class RecordWriter(FileWriter):
    """A writer of one file with a line or row for every logged step; images and the config are elsewhere.

    Args:
        filename: The file in the run's folder.
    """

    keeps_images = False

    def __init__(self, filename: str) -> None:
        super().__init__(filename)
        self.filename = filename

    @abstractmethod
    def as_bytes(self, record: dict[str, float]) -> bytes:
        """A record as it stands in the file."""

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """One record."""
        self.add(Record(self.as_bytes({"step": step, **scalars}), (scalars, step)))

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """One record with one number."""
        self.write_scalars({name: value}, step)

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """Images are not kept here."""

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """The config stands in config.yaml beside this file."""


def appending(path: Path) -> FileIO:
    """A file to add to, without a buffer: what it has taken is on its way to the disk."""
    return open(path, "ab", buffering=0)


def say_shorter(path: Path, found: int, saved: int, unit: str) -> None:
    """Warn if records that a checkpoint counts on are gone."""
    if found < saved:
        log.warning(
            "%s has lost records: it has %d of the %d %s that its checkpoint counts on", path, found, saved, unit
        )

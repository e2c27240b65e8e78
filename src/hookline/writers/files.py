"""FileWriter: the base class of all writers of files. It collects records for a quarter of a second, then writes them.

A full disk does not end a run: records that cannot be written wait for a retry, and checkpoints include their numbers.
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

from hookline.common.checks import check_name
from hookline.common.files import owned, refuse_other_kinds
from hookline.errors import ConfigError
from hookline.writers.base import Writer

log = logging.getLogger("hookline")

# The longest delay before a record reaches its file, in seconds. A write per record would slow down fast steps.
LATENCY = 0.25
# The most bytes that may wait while the disk is full, for writers with a limit.
LIMIT = 64 << 20
# The number of records that are written at once, and the most waiting records that are saved with a checkpoint.
AT_ONCE, SAVED = 1000, 10_000


class Record(NamedTuple):
    """The bytes of one record, and the numbers and the step that they encode, if it is a record of numbers."""

    data: bytes
    source: tuple[Mapping[str, float], int] | None = None


class FileWriter(Writer):
    """Writes a file or a folder of files in the run's folder.

    A full disk or a missing folder does not end the run: records wait, and a warning appears once.
    """

    cuts_back = True
    #: The most bytes of records that may wait; None for a writer that never drops any.
    limit: int | None = LIMIT
    #: The parameter that sets the name of the file or folder.
    label = "filename"

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or name in ("", ".", "..") or "\0" in name or Path(name).name != name:
            what = f"{self.label} must be the name of a {self.label.removesuffix('name')}"
            raise ConfigError(f"{type(self).__name__}: {what} in the run's folder, not {name!r}")
        check_name(f"{type(self).__name__}: {self.label}", name)
        self._name = name
        #: The path during a run, and the open file, once there is one.
        self._path: Path | None = None
        self._file: FileIO | None = None
        #: Records not in the file yet, their total size, and how many bytes of the first one are already in the file.
        self._waiting: deque[Record] = deque()
        self._waiting_bytes = 0
        self._partial_bytes = 0
        #: The number of complete records that this writer has written, and the number that it had to drop.
        self._written = 0
        self._lost = 0
        self._flushed = 0.0
        self._failing = False

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """Open the file of this run."""
        self.close()
        self.drop_waiting()
        path = work_dir / self._name
        refuse_other_kinds(path, folders=True)
        self._open(path)
        self._path, self._failing, self._lost = path, False, 0

    @abstractmethod
    def _open(self, path: Path) -> None:
        """Prepare to write to this path."""

    def _prepare_file(self) -> FileIO:
        """Return the file, ready for the waiting records. Raise OSError if that fails."""
        assert self._file is not None, "begin() opens the file"
        return self._file

    def add(self, record: Record) -> None:
        """Queue a record. It is written soon."""
        size = len(record.data)
        if self._failing and self.limit is not None and self._waiting_bytes + size > self.limit:
            self._lost += 1
            return
        self._waiting.append(record)
        self._waiting_bytes += size
        if time.monotonic() - self._flushed > LATENCY:
            self.flush()

    def add_all(self, records: list[Record]) -> None:
        """Queue several records. The caller writes them."""
        if self._failing:
            for record in records:  # there may be too many of them
                self.add(record)
            return
        self._waiting.extend(records)
        self._waiting_bytes += sum([len(record.data) for record in records])

    def flush(self) -> None:
        """Write all waiting records, including those that did not fit on a full disk before."""
        self._flushed = time.monotonic()
        if self._path is None:
            return
        try:
            if self._waiting:
                self._write(self._prepare_file())
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.warning("%s cannot be written: %s; will try again", self._path, error.strerror or error)
            self._failing = True

    def _write(self, file: FileIO) -> None:
        while self._waiting:
            together = b"".join([record.data for record in islice(self._waiting, AT_ONCE)])
            self._partial_bytes += file.write(together[self._partial_bytes :])
            if self._partial_bytes == len(together) and len(self._waiting) <= AT_ONCE:  # nearly always
                self._written += len(self._waiting)
                self._waiting.clear()
                self._waiting_bytes = self._partial_bytes = 0
                return
            while self._waiting and self._partial_bytes >= len(self._waiting[0].data):
                size = len(self._waiting.popleft().data)
                self._partial_bytes -= size
                self._waiting_bytes -= size
                self._written += 1

    @property
    def complete_size(self) -> int:
        """Return the size of the file up to the end of its last complete record."""
        return self._file.tell() - self._partial_bytes if self._file is not None else 0

    def unwritten(self) -> dict[str, Any]:
        """Return the waiting numbers as part of a state, or an empty dict if nothing waits."""
        numbers = ([*record.source] for record in self._waiting if record.source is not None)
        waiting = list(islice(numbers, SAVED))
        return {"waiting": waiting} if waiting else {}

    def drop_waiting(self) -> None:
        """Drop all waiting records."""
        self._waiting.clear()
        self._waiting_bytes = self._partial_bytes = 0

    def close(self) -> None:
        """Write all waiting records, and close the file."""
        if self._path is not None:
            self.flush()
            if lost := self._lost + len(self._waiting):
                log.warning("%s is missing its last %d records", self._path, lost)
            self.drop_waiting()
            self._close()
            self._path = None

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def files(self) -> Iterable[str]:
        """Return the one file or folder."""
        return [self._name]


class RecordWriter(FileWriter):
    """Writes one file with a line or row per logged step. Ignores images and the config.

    Args:
        filename: The file in the run's folder.
    """

    keeps_images = False

    def __init__(self, filename: str) -> None:
        super().__init__(filename)
        self.filename = filename

    @abstractmethod
    def as_bytes(self, record: dict[str, float]) -> bytes:
        """Return the record as it is written to the file."""

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """Write one record."""
        self.add(Record(self.as_bytes({"step": step, **scalars}), (scalars, step)))

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """Write one record with one number."""
        self.write_scalars({name: value}, step)

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """Ignore the image."""

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """Ignore the config: config.yaml in the same folder has it."""


def appending(path: Path) -> FileIO:
    """Open a file for appending, without a buffer, so that every write reaches the operating system at once."""
    return open(path, "ab", buffering=0, opener=owned)


def warn_if_shorter(path: Path, present: int, saved: int, unit: str) -> None:
    """Warn if the file has lost records that were in it when the checkpoint was saved."""
    if present < saved:
        log.warning(
            "%s has lost records: found %d of the %d %s that were there at the checkpoint", path, present, saved, unit
        )

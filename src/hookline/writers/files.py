"""FileWriter: what writers of files share. Records gather for a quarter of a second, and are written together."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.errors import ConfigError
from hookline.writers.base import Writer

if TYPE_CHECKING:
    from hookline.writers.append import AppendFile

log = logging.getLogger("hookline")

# How late a record may be in its file, in seconds: quick steps need not wait for each to be made and written.
LATENCY = 0.25
# How many bytes wait for a full disk, where they are bounded.
LIMIT = 64 << 20
# What a record that is no bytes yet counts for.
GUESS = 200


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
        if name in ("", ".", "..") or "\0" in name or Path(name).name != name:
            what = f"{self.label} is the name of a {self.label.removesuffix('name')}"
            raise ConfigError(f"{type(self).__name__}: {what} in the run's folder, not {name!r}")
        self._name = name
        #: Where it is, while a run lasts, and the file that is written to, once there is one.
        self._path: Path | None = None
        self._file: AppendFile | None = None
        self._gathered: list[Any] = []
        self._size = 0
        self._flushed = 0.0
        self._failing = False
        self._lost = 0

    def begin(self, work_dir: Path, experiment_name: str) -> None:
        """Take up the file."""
        self.close()
        path = work_dir / self._name
        self._open(path)
        self._path, self._failing, self._lost = path, False, 0

    @abstractmethod
    def _open(self, path: Path) -> None:
        """Get ready to write there."""

    @abstractmethod
    def _write(self, records: list[Any]) -> None:
        """Write records; OSError means that none of them was taken."""

    def gather(self, record: Any) -> None:
        """Take a record, to be written soon."""
        size = len(record) if isinstance(record, bytes) else GUESS
        if self._failing and self.limit is not None and self._size + size > self.limit:
            self._lost += 1
            return
        self._gathered.append(record)
        self._size += size
        if time.monotonic() - self._flushed > LATENCY:
            self.flush()

    def flush(self) -> None:
        """Write what has gathered, and what a full disk did not take before."""
        self._flushed = time.monotonic()
        if self._path is None:
            return
        try:
            if self._gathered:
                self._write(self._gathered)
                self.forget()
            elif self._file is not None:
                self._file.write(b"")
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.warning("%s cannot be written: %s; it is tried again", self._path, error.strerror or error)
            self._failing = True

    def forget(self) -> None:
        """Drop what has gathered."""
        self._gathered.clear()
        self._size = 0

    def close(self) -> None:
        """Write what has gathered, and close the file."""
        if self._path is not None:
            self.flush()
            if lost := self._lost + len(self._gathered):
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

    def write_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """One record."""
        self.gather({"step": step, **scalars})

    def write_scalar(self, name: str, value: float, step: int) -> None:
        """One record with one number."""
        self.write_scalars({name: value}, step)

    def write_image(self, name: str, image: Any, step: int, caption: str | None = None) -> None:
        """Images are not kept here."""

    def write_config(self, name: str, config: Mapping[str, Any], step: int) -> None:
        """The config stands in config.yaml beside this file."""

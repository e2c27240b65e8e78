"""A file that records are added to. A full disk does not end a run: what it does not take waits, and is tried again."""

from __future__ import annotations

import logging
import os
from collections import deque
from pathlib import Path

log = logging.getLogger("hookline")


class AppendFile:
    """Bytes at the end of a file; that some of them have to wait is said once, until they are written.

    Args:
        path: The file.
        limit: At most so many bytes wait; what comes then is lost. Without it, nothing ever is.
    """

    def __init__(self, path: Path, limit: int | None = None) -> None:
        self.name = str(path)
        self.limit = limit
        self._raw = open(path, "ab", buffering=0)  # noqa: SIM115  # closed in close()
        self._waiting: deque[bytes] = deque()
        #: How many bytes wait, and how many are lost.
        self.waiting = 0
        self.lost = 0
        self._failing = False

    def write(self, data: bytes) -> None:
        """Add a whole number of records, after those that wait."""
        if self._failing and self.limit is not None and self.waiting + len(data) > self.limit:
            self.lost += len(data)
        elif data:
            self._waiting.append(data)
            self.waiting += len(data)
        try:
            while self._waiting:
                self._written(self._raw.write(self._waiting[0]))
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.warning("%s cannot be written: %s; it is tried again", self.name, error.strerror or error)
            self._failing = True

    def _written(self, count: int) -> None:
        first = self._waiting.popleft()
        if count < len(first):
            self._waiting.appendleft(first[count:])
        self.waiting -= count

    @property
    def size(self) -> int:
        """How long the file is."""
        return self._raw.tell()

    def cut(self, size: int) -> None:
        """Make the file as short as it was once; what waits is dropped, too."""
        self._waiting.clear()
        self.waiting = 0
        self._raw.truncate(min(size, self._raw.seek(0, os.SEEK_END)))
        self._raw.seek(0, os.SEEK_END)

    def close(self) -> None:
        """One last try, and the end."""
        self.write(b"")
        if self.waiting or self.lost:
            log.warning("%s lacks its last %d bytes of records", self.name, self.waiting + self.lost)
        self._raw.close()

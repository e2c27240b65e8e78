"""SHA-256 of data while it is written: a second thread hashes, because both take about the same time."""

from __future__ import annotations

import hashlib
import threading
from queue import Queue
from typing import Any

# Data of this size or more is hashed in a thread. Starting one costs as much as hashing 0.1 MB.
LARGE = 1 << 20


class Hash:
    """The SHA-256 of several pieces of data, in order. From the first large piece on, a thread computes it.

    Small pieces are copied. A large one must not change before `wait` or `finish` returns.
    """

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._pieces: Queue[Any] = Queue()
        self._thread: threading.Thread | None = None

    def update(self, data: Any) -> None:
        """Hash a piece, now or in the thread."""
        is_large = len(data) >= LARGE
        if is_large and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="hookline-hash", daemon=True)
            self._thread.start()
        if self._thread is None:
            self._sha256.update(data)
        else:
            self._pieces.put(data if is_large else bytes(data))

    def _run(self) -> None:
        while (data := self._pieces.get()) is not None:
            self._sha256.update(data)  # without the interpreter lock
            del data
            self._pieces.task_done()
        self._pieces.task_done()

    def wait(self) -> None:
        """Wait until all pieces are hashed."""
        self._pieces.join()

    def finish(self) -> str:
        """End the thread, and return the hash so far. More pieces may follow."""
        if self._thread is not None:
            self._pieces.put(None)
            self._thread.join()
            self._thread = None
        return self._sha256.hexdigest()

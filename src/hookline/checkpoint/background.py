"""Saving in the background: one thread, at most one save at a time, and no error is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """Runs one task at a time in a thread.

    If a task fails, `on_failure` is called in the thread, to alert the training, and `wait` raises the error.
    """

    def __init__(self, on_failure: Callable[[], None]) -> None:
        self._on_failure = on_failure
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Start a task; wait for the previous one first."""
        self.wait()
        self._thread = threading.Thread(target=self._run, args=(work,), name="hookline-save", daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._error = error
            self._on_failure()

    @property
    def busy(self) -> bool:
        """Return whether a task is running."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def failed(self) -> bool:
        """Return whether there is an error that has not been raised yet."""
        return self._error is not None

    def join(self) -> None:
        """Wait until no task is running."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def wait(self) -> None:
        """Wait until no task is running, and raise the error if the last one failed."""
        self.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

"""Writing beside the training: one thread, at most one save under way, and no error lost."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """Runs one piece of work at a time in a thread.

    `on_failure` is called in the thread, so that the training can look; `wait` raises what went wrong.
    """

    def __init__(self, on_failure: Callable[[], None]) -> None:
        self._on_failure = on_failure
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Begin; what is still under way is waited for first."""
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
        """Whether something is under way."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def failed(self) -> bool:
        """Whether there is an error that nobody has been told."""
        return self._error is not None

    def join(self) -> None:
        """Wait until nothing is under way."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def wait(self) -> None:
        """The same, and raise what went wrong in it."""
        self.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

"""Redrawing by time. A thread draws the live display, so that no step of the run does."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable
from functools import partial

log = logging.getLogger("hookline")

# Seconds between two drawings (more than four per second are not visible), and the share of time spent on them.
PAUSE = 0.25
SHARE = 0.01


class Refresher:
    """Draws at most four times a second, and for at most one percent of the time, until it is stopped.

    If drawing fails, there is one warning and no further drawing. The run continues.
    """

    def __init__(self, draw: Callable[[], None]) -> None:
        self._draw = draw
        self._over = threading.Event()
        self._failed = False
        #: The CPU time of the last drawing. Time in which the thread only waited costs the run nothing.
        self._took = 0.0
        # In a notebook, the context of the caller says to which cell an output belongs.
        run = partial(contextvars.copy_context().run, self._run)
        self._thread = threading.Thread(target=run, name="hookline-display", daemon=True)

    def start(self) -> None:
        """Draw once, so that everything is imported, and then by time."""
        self.draw()
        try:
            self._thread.start()
        except RuntimeError as error:  # the system has no more threads
            self._fail(error)

    def stop(self) -> None:
        """Stop drawing. When this returns, the thread has ended."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def draw(self) -> None:
        """Draw now, in the calling thread."""
        if self._failed:
            return
        began = time.thread_time()
        try:
            self._draw()
        except Exception as error:
            self._fail(error)
        self._took = time.thread_time() - began

    @property
    def pause(self) -> float:
        """Return the seconds until the next drawing."""
        return max(PAUSE, self._took / SHARE)

    def _run(self) -> None:
        self._took = 0.0  # the first drawing is the slowest
        while not self._over.wait(self.pause):
            self.draw()

    def _fail(self, error: Exception) -> None:
        self._failed = True
        log.warning(
            "the progress display stops, because it cannot be drawn (%s: %s); the run continues",
            *(type(error).__name__, error),
        )

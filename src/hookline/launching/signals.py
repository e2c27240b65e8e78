"""Signals to a launcher: they are passed on to its processes, which save and end by themselves."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

#: After a failure, the other processes have this many seconds to notice it and to end by themselves.
NOTICE = 5.0
#: After that, or after a second Ctrl-C, this many seconds to end before they are killed.
LAST = 5.0
#: Two signals within this many seconds count as one: a job scheduler may signal a process and its group.
SAME = 0.3
#: The seconds between two looks at processes that end.
PERIOD = 0.05

FORWARDED = (signal.SIGTERM, signal.SIGINT) + ((signal.SIGHUP,) if sys.platform != "win32" else ())
# torch's agent handles this one, too. Here, it ends the launcher at once, and so its processes.
_UNTOUCHED = () if sys.platform == "win32" else (signal.SIGQUIT,)


class Signals:
    """The signals that a launcher got.

    Args:
        send: Sends a signal to all processes that are running.
        grace: How many seconds the processes may take to end after the first signal.
    """

    def __init__(self, send: Callable[[int], None], grace: float) -> None:
        self.send, self.grace = send, grace
        #: The first signal; 0 if there was none.
        self.first = 0
        #: Until when the processes may take to end, by `time.monotonic`.
        self.deadline = math.inf
        self._last, self._owner = 0.0, os.getpid()  # a copy of the launcher passes nothing on
        self._before: dict[int, Any] = {}

    @contextmanager
    def forwarded(self) -> Iterator[None]:
        """Pass signals on inside this context. Ignored ones stay ignored, as under nohup. Only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._before = {number: signal.getsignal(number) for number in (*FORWARDED, *_UNTOUCHED)}
        self.handle()
        try:
            yield
        finally:
            self.restore()

    def handle(self) -> None:
        """Set the handlers; again if somebody else replaced them."""
        for number, before in self._before.items():
            ours = number in FORWARDED and before != signal.SIG_IGN
            signal.signal(number, self._receive if ours else before)

    def restore(self) -> None:
        """Set the handlers from before, also in a copy of the launcher that is one of its processes."""
        for number, before in self._before.items():
            signal.signal(number, before)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if os.getpid() != self._owner or (self.first and now - self._last < SAME):
            return
        self.deadline = now + (LAST if self.first else self.grace)
        self.first, self._last = self.first or number, now
        self.send(number)


@contextmanager
def ending() -> Iterator[None]:
    """Let a signal end the launcher with the exit code of the signal while it has no processes to pass it on to."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.getsignal(number) for number in FORWARDED if number != signal.SIGINT}
    taken = [number for number, handler in before.items() if handler == signal.SIG_DFL]
    try:
        for number in taken:
            signal.signal(number, end)
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)

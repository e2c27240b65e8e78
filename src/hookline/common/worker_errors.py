"""When torch may raise its error about a loader's worker that died.

torch notices such a death by a handler of SIGCHLD, and raises the error wherever the main thread is then. In the middle
of a save, whoever checks the file would take it for damage of the file.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# torch's handlers, while they are replaced until another run begins.
_replaced: list[Any] = []


def silence() -> None:
    """Let torch notice no death of a worker until `listen` is called. Only the main thread can."""
    if sys.platform != "win32":
        _replaced.append(signal.signal(signal.SIGCHLD, signal.SIG_DFL) or signal.SIG_DFL)


def listen() -> None:
    """Let torch notice the death of workers again."""
    while _replaced and sys.platform != "win32":
        signal.signal(signal.SIGCHLD, _replaced.pop())


@contextmanager
def put_off() -> Iterator[None]:
    """Put the error about a worker that dies off until the context ends. It is dropped if there is another error."""
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGCHLD)
    if not callable(handler):
        yield
        return
    came: list[FrameType | None] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(frame)

    signal.signal(signal.SIGCHLD, note)
    try:
        yield
    finally:
        if note in _replaced:  # `silence` was called in the meantime
            _replaced[_replaced.index(note)] = handler
            came.clear()
        else:
            signal.signal(signal.SIGCHLD, handler)
    if came:
        handler(signal.SIGCHLD, came[-1])

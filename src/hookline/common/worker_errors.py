"""When torch may raise its error about a loader's worker that died.

torch notices such a death by a handler of SIGCHLD, and raises the error wherever the main thread is then. In the middle
of a save, whoever checks the file would take it for damage of the file.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from types import FrameType
from typing import Any

from hookline.errors import DataError, blame

#: The function of torch in which all errors about a batch from a worker come up.
READS = "_try_get_data"
#: How long a process may take from its last message to its end, in seconds.
PATIENCE = 2.0
#: How the message about a worker that died begins.
DIED = "a worker process of a loader died"

# torch's handlers, while they are replaced until another run begins.
_replaced: list[Any] = []


def death_behind(error: BaseException) -> str:
    """Return what torch knows about the death of a worker that this error is a consequence of; empty if it is not.

    The first sign may also be a broken connection to the worker, before its death is known.
    """
    if isinstance(error, RuntimeError) and str(error).startswith("DataLoader worker"):
        return str(error).strip()
    if not (isinstance(error, (OSError, EOFError)) and was_reading(error)):
        return ""
    from torch.utils.data._utils import signal_handling  # imports torch

    end = time.monotonic() + PATIENCE
    while True:
        try:
            signal_handling._error_if_any_worker_fails()  # type: ignore[attr-defined]  # as torch's own handler does
        except RuntimeError as found:
            return str(found).strip()
        if time.monotonic() > end:
            return ""
        time.sleep(0.01)


def explain(error: BaseException) -> BaseException:
    """Return an error about a worker that died, in place of what torch raises then, often at an arbitrary place."""
    death = death_behind(error)
    if not death:
        return error
    found = DataError(f"{DIED}: {death.rstrip('.')}; if it was killed, memory may have run out")
    for note in getattr(error, "__notes__", []) if was_reading(error) else ():
        blame(found, note)
    return found


def was_reading(error: BaseException) -> bool:
    """Return whether an error came up while a batch was read from a worker."""
    return any(frame.f_code.co_name == READS for frame, _ in walk_tb(error.__traceback__))


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

"""SIGTERM, SIGINT and SIGHUP during training: finish the step, save and end. A second signal ends at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from hookline.common import launched, worker_errors

if TYPE_CHECKING:
    from hookline.run.requests import Requests

#: Two signals within this many seconds count as one.
SAME = 0.3
HANDLED = (signal.SIGTERM, signal.SIGINT) + ((signal.SIGHUP,) if sys.platform != "win32" else ())


@contextmanager
def signals_as_requests(requests: Requests, notify: Callable[[str], None]) -> Iterator[None]:
    """Turn signals into requests, and restore the previous handlers afterwards. Only the main thread can have handlers.

    `notify` shows a line, and has to be safe in a handler.
    A signal that is ignored (SIGINT in a background job of a shell, SIGHUP under nohup) stays ignored.
    """
    launched.grace()  # a wrong value is refused now, and not after a signal
    requests.forget_signal()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()
    came: list[float] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a loader's worker, forked while this handler was set
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif came:
            if time.monotonic() - came[0] > SAME:  # a launcher may pass on a Ctrl-C that this process also got
                raise ending(number)
        else:
            notify("Finishing the step and saving. Press Ctrl-C again to quit immediately.")
            came.append(time.monotonic())
            requests.receive_signal(number)
            # A job scheduler also ends the workers of loaders, and torch would raise an error about them in the middle
            # of the save or on the way out. So torch is not notified until another run begins.
            worker_errors.silence()

    worker_errors.listen()
    before = {number: signal.getsignal(number) for number in HANDLED}
    taken = [number for number in HANDLED if before[number] not in (signal.SIG_IGN, None)]
    try:
        for number in taken:
            signal.signal(number, handle)
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])


def describe_ignored() -> str:
    """Return how to end this process if Ctrl-C has no effect on it; empty if Ctrl-C works.

    A shell without job control ignores SIGINT in its background jobs, and so do some CI runners.
    """
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        return ""
    if signal.getsignal(signal.SIGTERM) == signal.SIG_IGN:
        return f"SIGINT and SIGTERM are ignored here; only kill -KILL {os.getpid()} ends this process"
    return f"Ctrl-C has no effect here, because SIGINT was ignored at the start; to end, use: kill {os.getpid()}"


def ending(number: int, reported: bool = False) -> BaseException:
    """Return the exception that ends a run after a signal. If it was `reported`, nobody has to report it again."""
    error: BaseException = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
    error.reported = reported  # type: ignore[attr-defined]  # any exception accepts new attributes
    return error


def is_ending(error: BaseException) -> bool:
    """Return whether an exception ends a run after a signal."""
    return hasattr(error, "reported")


def was_reported(error: BaseException) -> bool:
    """Return whether the end of a run after a signal was reported, with its checkpoint."""
    return bool(getattr(error, "reported", False))

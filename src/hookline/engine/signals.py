"""SIGTERM, SIGINT, SIGHUP while training: the step is finished and saved, training ends; a second one ends at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from hookline.screen.terminal import Terminal

#: Two signals within so many seconds are one.
SAME = 0.3
HANDLED = (signal.SIGTERM, signal.SIGINT) + ((signal.SIGHUP,) if sys.platform != "win32" else ())

# What torch does when a worker of a loader dies, while it is put off.
_put_off: list[Any] = []


class Interruptible(Protocol):
    """What a signal needs of the run that it ends."""

    terminal: Terminal
    #: The signal that wants the run to end; 0 while there is none.
    signalled: int
    #: Whether there is something that the loop has not acted on yet.
    asked: bool


@contextmanager
def caught(runner: Interruptible) -> Iterator[None]:
    """Tell the runner about signals, and put the handlers back afterwards. Only the main thread can have handlers.

    A signal that is ignored (SIGINT in a background job of a shell, SIGHUP under nohup) stays ignored.
    """
    runner.signalled = 0
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()
    came: list[float] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a loader's worker, forked while this handler stood
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif runner.signalled:
            if time.monotonic() - came[0] > SAME:  # a launcher may pass on a Ctrl-C that this process got by itself
                raise ending(number)
        else:
            if not runner.terminal.quiet and sys.stderr.isatty():
                with suppress(OSError):  # the terminal is what may have gone
                    os.write(2, b"\nfinishing the step and saving; once more ends at once\n")
            came.append(time.monotonic())
            runner.signalled = number
            runner.asked = True
            # A scheduler ends the workers of loaders, too, and torch would raise their death in the middle of the save,
            # or on the way out; so it does not hear of it, until another run begins.
            if sys.platform != "win32":
                _put_off.append(signal.signal(signal.SIGCHLD, signal.SIG_DFL) or signal.SIG_DFL)

    while _put_off and sys.platform != "win32":
        signal.signal(signal.SIGCHLD, _put_off.pop())
    before = {number: signal.getsignal(number) for number in HANDLED}
    taken = [number for number in HANDLED if before[number] not in (signal.SIG_IGN, None)]
    try:
        for number in taken:
            signal.signal(number, handle)
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])


def ending(number: int) -> BaseException:
    """How a run ends after a signal."""
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)

"""A pseudo-terminal for engines that draw: what they show is read by another process and discarded."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO


@contextmanager
def on_a_terminal() -> Iterator[IO[str]]:
    """Connect stdout and stderr with a terminal of 120 columns, and yield the stream that was stderr before."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    # In a session of its own, so that Ctrl-C does not end it: a terminal that nobody reads blocks those who draw.
    nowhere = subprocess.DEVNULL
    reader = subprocess.Popen(["cat"], stdin=ours, stdout=nowhere, stderr=nowhere, start_new_session=True)
    kept = os.dup(1), os.dup(2)
    os.environ.setdefault("TERM", "xterm-256color")
    try:
        _connect(theirs, theirs)
        with os.fdopen(os.dup(kept[1]), "w", buffering=1) as shown:
            yield shown
    finally:
        _connect(*kept)
        for descriptor in (*kept, theirs, ours):
            os.close(descriptor)
        reader.kill()  # it cannot end by itself while any copy of the terminal is open
        reader.wait()


def _connect(out: int, err: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(out, 1)
    os.dup2(err, 2)

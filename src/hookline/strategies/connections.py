"""The connections of this process to others: finding them, and allowing enough of them."""

from __future__ import annotations

import logging
import os
import socket
import stat
import sys
from contextlib import suppress

log = logging.getLogger("hookline")

#: The connections per process that the main one has at most, and the open files for everything else.
CONNECTIONS, SPARE = 6, 512


def allow_connections(processes: int) -> None:
    """Raise the limit of open files if the connections to many processes need more. torch's message names no limit."""
    if sys.platform == "win32":
        return
    import resource

    needed = CONNECTIONS * processes + SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < needed:
        log.warning(
            "%d processes need about %d open files in the main process, but the limit is %d (ulimit -Hn): the run may "
            "end with 'Too many open files'",
            *(processes, needed, most),
        )


def ends_of(number: int) -> tuple[str, str]:
    """Return the addresses of both ends of a connection, as text; empty if it is not connected."""
    with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
        return str(connection.getsockname()[:2]), str(connection.getpeername()[:2])
    return "", ""


def sockets() -> dict[int, int]:
    """Return the inodes of all open sockets of this process, with their descriptors."""
    found = {}
    with suppress(OSError):  # only Linux has /proc
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                about = os.stat(int(name))
                if stat.S_ISSOCK(about.st_mode):
                    found[about.st_ino] = int(name)
    return found

"""A port of this machine for a server that another process will start in a moment."""

from __future__ import annotations

import random
import socket

#: The ports to choose from. The system gives connections ports above them, so none takes such a port in the meantime.
LOW, HIGH = 20_000, 30_000
#: The number of ports that are tried before the system may choose any.
TRIES = 100


def find_free_port(host: str = "") -> int:
    """Return a port that no program uses now."""
    choices = random.SystemRandom()  # the generators of the run stay as they are
    for port in [*(choices.randrange(LOW, HIGH) for _ in range(TRIES)), 0]:
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:  # it is in use
                continue
            return int(probe.getsockname()[1])
    raise OSError(f"no free port on {host or 'this machine'}")

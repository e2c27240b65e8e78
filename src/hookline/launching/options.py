"""The options of a launch over several processes and machines, checked before anything starts."""

from __future__ import annotations

import errno
import math
import re
import socket
from dataclasses import dataclass, replace

from hookline.errors import ConfigError, DistributedError, did_you_mean

BACKENDS = ("c10d", "static")
#: The port of a rendezvous whose endpoint names only a host; it is torch's.
PORT = 29400


@dataclass(frozen=True)
class Options:
    """The number of processes to start, and the way in which machines find one another.

    Args:
        nproc: The number of processes on this machine.
        nnodes: The number of machines: `2`, or `1:4` for a number that may change.
        node_rank: The number of this machine. Machine 0 hosts the rendezvous.
        rdzv_backend: How the machines find one another.
        rdzv_endpoint: Where they do: `host:port`, the same on all machines.
        rdzv_id: The name of the run, the same on all machines.
        max_restarts: How often all processes are started again after a failure.
        grace: How many seconds the processes may take to save and end after a signal.
    """

    nproc: int = 1
    nnodes: str = "1"
    node_rank: int | None = None
    rdzv_backend: str = "c10d"
    rdzv_endpoint: str = ""
    rdzv_id: str = ""
    max_restarts: int = 0
    grace: float = 60.0

    def __post_init__(self) -> None:
        for name, value, least in (
            ("nproc", self.nproc, 1),
            ("max-restarts", self.max_restarts, 0),
            ("grace", self.grace, 0),
        ):
            if not least <= value < math.inf:
                raise ConfigError(f"--{name} must be a number of at least {least}, not {value:g}")
        low, high = self.nodes
        if self.rdzv_backend not in BACKENDS:
            raise ConfigError(
                f"unknown --rdzv-backend '{self.rdzv_backend}'; {did_you_mean(self.rdzv_backend, BACKENDS)}"
            )
        if self.node_rank is not None and not 0 <= self.node_rank < high:
            raise ConfigError(
                f"--node-rank must be from 0 to {high - 1} with --nnodes {self.nnodes}, not {self.node_rank}"
            )
        if self.several_nodes and not self.rdzv_endpoint:
            raise ConfigError(
                f"--nnodes {self.nnodes} needs --rdzv-endpoint HOST:PORT: a machine of the run and a free port of it, "
                "the same on all machines"
            )
        if self.rdzv_backend == "static" and (self.node_rank is None or low != high):
            raise ConfigError("--rdzv-backend static needs --node-rank, and one number for --nnodes")
        if self.rdzv_backend != "c10d" and not self.rdzv_endpoint:
            raise ConfigError(f"--rdzv-backend {self.rdzv_backend} needs --rdzv-endpoint HOST:PORT")
        _ = self.address

    @property
    def asks_for_processes(self) -> bool:
        """Return whether a launcher is needed: for several processes or machines, or to restart a single one."""
        return replace(self, grace=0.0) != Options(grace=0.0)

    @property
    def nodes(self) -> tuple[int, int]:
        """Return the least and the greatest number of machines."""
        match = re.fullmatch(r"([0-9]{1,6})(?::([0-9]{1,6}))?", self.nnodes)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 0 < low <= high:
            raise ConfigError(f"--nnodes must be a number of machines such as 2, or MIN:MAX, not '{self.nnodes}'")
        return low, high

    @property
    def several_nodes(self) -> bool:
        """Return whether there may be other machines."""
        return self.nodes[1] > 1

    @property
    def address(self) -> tuple[str, int]:
        """Return the host and the port of the endpoint. By default, any free port of this machine."""
        if not self.rdzv_endpoint:
            return "127.0.0.1", 0
        match = re.fullmatch(r"(\[[0-9a-fA-F:.%]+\]|[^:\[\]\s/]+)(?::([0-9]{1,5}))?", self.rdzv_endpoint)
        if match is None or int(match[2] or PORT) > 65535:
            raise ConfigError(f"--rdzv-endpoint must be HOST:PORT, not '{self.rdzv_endpoint}'")
        return match[1].strip("[]"), int(match[2] or PORT)


def refuse_unknown_host(options: Options) -> None:
    """Raise an error if the host of the rendezvous has no address. torch would try for minutes."""
    host, port = options.address
    try:
        socket.getaddrinfo(host, port)
    except OSError as error:
        raise DistributedError(
            f"--rdzv-endpoint {options.rdzv_endpoint}: this machine does not know the host '{host}' ({error.strerror})"
        ) from None


def refuse_taken_port(options: Options) -> None:
    """Raise an error if this machine has to host the rendezvous, and the port is in use.

    Without it, torch would try to join whatever listens there, and give up after a minute.
    """
    host, port = options.address
    hosts = options.node_rank == 0 or not options.several_nodes
    if not port or not hosts:
        return
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch does; a port in use is still refused
        try:
            probe.bind(("", port))
        except OSError as error:
            why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            raise DistributedError(
                f"port {port} of this machine {why}, so --rdzv-endpoint {options.rdzv_endpoint} cannot be created; "
                "choose another port, or end the process that uses it"
            ) from None

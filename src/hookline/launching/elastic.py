"""Start the processes of a command on this machine, with torch's elastic agent, and return their exit code."""

from __future__ import annotations

import logging
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from hookline.common import launched
from hookline.errors import ConfigError, DistributedError
from hookline.launching import signals
from hookline.launching.failures import first_of
from hookline.launching.options import Options, refuse_taken_port, refuse_unknown_host

if TYPE_CHECKING:
    from torch.distributed.elastic.agent.server.api import WorkerSpec


def run(command: Sequence[str], options: Options, say: Callable[[str], None] = print, continuing: str = "") -> int:
    """Run a command in several processes, restart them if they fail, and return the exit code of the first failure.

    Args:
        command: The command line of a process. Each gets the variables that torchrun sets: RANK, WORLD_SIZE, ...
        options: How many processes to start, and where.
        say: Shows a line, or an error of several lines.
        continuing: The command that continues the run, for the last line of a run that ends after a signal.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise ConfigError("torchrun started this process, so it cannot start others; use either torchrun or --nproc")
    refuse_unknown_host(options)
    refuse_taken_port(options)
    with signals.ending(), _environment(), tempfile.TemporaryDirectory(prefix="hookline-launch-") as folder:
        return _run(command, options, say, folder, continuing)


def _run(command: Sequence[str], options: Options, say: Callable[[str], None], folder: str, continuing: str) -> int:
    from torch.distributed import DistError
    from torch.distributed.elastic.rendezvous import RendezvousError

    from hookline.launching.agent import Agent, Files
    from hookline.launching.rendezvous import SilentError

    files = Files(folder)
    files.variables = {
        launched.LAUNCHER: str(os.getpid()),
        launched.GRACE: str(options.grace),
        launched.COMMAND: continuing,
    }
    # torch's C++ code shows stacks for every connection that another process has closed.
    files.variables["TORCH_CPP_LOG_LEVEL"] = os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")
    if options.nproc > 1:
        files.variables["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")  # as torchrun does
    try:
        spec = _specification(command, options)
        agent = Agent(spec, files, options, say)
        try:
            with agent.signals.forwarded():
                agent.run()
        finally:
            with suppress(SilentError):
                agent.rendezvous.leave(for_good=not agent.signals.first)  # after a signal, this machine may come back
    except SilentError as error:
        host, port = options.address
        raise DistributedError(f"{error}\n  check the machine and the network at {host}:{port}") from error
    except (RendezvousError, DistError) as error:
        host, port = options.address
        why = next(iter(str(error.__cause__ or error).splitlines()), type(error).__name__)
        raise DistributedError(
            f"the machines (--nnodes {options.nnodes}) did not find one another at {host}:{port}: {why}\n"
            "  start the command on all of them, and check that they can reach this port"
        ) from error
    return first_of(agent.failures.values()).exit_code if agent.failures else 0


def _specification(command: Sequence[str], options: Options) -> WorkerSpec:
    """Return what torch's agent starts, with the rendezvous that it takes part in."""
    from torch.distributed.elastic.agent.server.api import WorkerSpec
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

    host, port = options.address
    low, high = options.nodes
    more: dict[str, Any] = {}
    if options.rdzv_backend == "static":
        more = {"rank": options.node_rank}
    elif options.node_rank is not None or not options.several_nodes:
        more = {"is_host": not options.node_rank}
    parameters = RendezvousParameters(
        backend=options.rdzv_backend,
        endpoint=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        run_id=options.rdzv_id or ("hookline" if options.several_nodes else uuid.uuid4().hex),
        min_nodes=low,
        max_nodes=high,
        local_addr=None if options.rdzv_endpoint else host,
        **more,
    )
    static = options.rdzv_backend == "static"
    return WorkerSpec(
        role="hookline",
        local_world_size=options.nproc,
        entrypoint=command[0],
        args=tuple(command[1:]),
        rdzv_handler=get_rendezvous_handler(parameters),
        max_restarts=options.max_restarts,
        monitor_interval=0.1,
        master_addr=host if static else None,
        master_port=port if static else None,
    )


@contextmanager
def _environment() -> Iterator[None]:
    """Set torch's agent up: it shares no store with its processes, and leaves the output to us.

    With a shared store, a restart on gloo finds the data of the attempt before it, and fails.
    """
    logger, variable = logging.getLogger("torch.distributed.elastic"), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    before, propagates, quiet = os.environ.get(variable), logger.propagate, logging.NullHandler()
    os.environ.setdefault(variable, "1")
    logger.propagate = "LOGLEVEL" in os.environ  # torch's own variable for the level of these messages
    logger.addHandler(quiet)
    try:
        yield
    finally:
        logger.propagate = propagates
        logger.removeHandler(quiet)
        if before is None:
            os.environ.pop(variable, None)

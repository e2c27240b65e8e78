"""The options of `hookline train` that start several processes, and the start itself."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hookline.cli.common import show
from hookline.cli.continuing import continuing_command
from hookline.cli.errors import whole_tracebacks
from hookline.errors import ConfigError
from hookline.launching.elastic import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline.config.factory import Maker
    from hookline.config.loading import LoadedConfig
    from hookline.launching.options import Options

Nproc = Annotated[
    int, typer.Option("--nproc", metavar="N", help="Train with N processes on this machine, one per device.")
]
Nnodes = Annotated[
    str, typer.Option("--nnodes", metavar="N|MIN:MAX", help="The number of machines. Run the command on each of them.")
]
NodeRank = Annotated[
    int | None,
    typer.Option("--node-rank", metavar="I", help="The number of this machine; 0 hosts the rendezvous."),
]
RdzvBackend = Annotated[
    str, typer.Option("--rdzv-backend", metavar="NAME", help="How the machines find one another: c10d or static.")
]
RdzvEndpoint = Annotated[
    str,
    typer.Option("--rdzv-endpoint", metavar="HOST:PORT", help="Where they do: the same for all, a free port of one."),
]
RdzvId = Annotated[
    str, typer.Option("--rdzv-id", metavar="NAME", help="The name of the run: the same on all machines.")
]
MaxRestarts = Annotated[
    int,
    typer.Option(
        "--max-restarts", metavar="K", help="Restart all processes, and resume, up to K times after a failure."
    ),
]
Grace = Annotated[
    float,
    typer.Option("--grace", metavar="SECONDS", help="Time to save and end after a signal, before a kill."),
]


def train_in_processes(
    loaded: LoadedConfig,
    words: Sequence[str],
    resume: bool,
    keep: Sequence[str],
    allow: Sequence[str],
    options: Options,
    more: Sequence[str] = (),
) -> None:
    """Check the config once, then train in the processes that the options ask for, and exit with their exit code.

    `more` are further options for each process.
    """
    from hookline.config.names import Resolver
    from hookline.config.validation import check

    resolver = Resolver(loaded.file, allow)
    check(loaded, resolver)
    from hookline.config.factory import Maker
    from hookline.strategies import pick

    maker = Maker(loaded, resolver)
    maker.call(("strategy",), pick, loaded.data.get("strategy", "auto"))
    refuse_missing_devices(loaded.data.get("device", "auto"), options.nproc)
    if options.nproc > (os.cpu_count() or 1):  # otherwise the processes are cheap, and building the data may not be
        refuse_few_samples(maker, options.nproc * options.nodes[0])
    # Python would find modules in the working directory first, unless this process does so, too.
    safe_path = () if sys.path[:1] in ([""], [os.getcwd()]) else ("-P",)
    command = [sys.executable, "-u", *safe_path, "-m", "hookline", "train", *(["--resume"] if resume else [])]
    command += [word for choice in keep for word in ("--keep", choice)]
    command += [*more, *["--traceback"] * whole_tracebacks()]
    command += [word for module in allow for word in ("--allow", module)]
    continuing = continuing_command(words, keep, allow, options)
    code = run([*command, "--", *words], options, lambda text: show(f"hookline: {text}", error=True), continuing)
    if code:
        raise typer.Exit(code)


def refuse_missing_devices(name: str, nproc: int) -> None:
    """Raise an error if the config trains on an accelerator of which this machine has too few."""
    import torch

    from hookline.strategies import pick_device

    device = pick_device(name)
    if device.type != "cpu" and nproc > (count := torch.accelerator.device_count()):
        raise ConfigError(
            f"--nproc {nproc} needs a device for each process, but this machine has {count} of the type "
            f"'{device.type}'; use --nproc {count}, or train on the CPU with device=cpu"
        )


def refuse_few_samples(maker: Maker, processes: int) -> None:
    """Build the training data, and raise an error if it has too few samples for the processes.

    Data that only a started process can build is left to the processes, which check the same.
    """
    from hookline.common import rng
    from hookline.common.import_rules import import_rules
    from hookline.config.assembly import Assembly
    from hookline.data.sources import shared

    keys, section = ("train", "dataloader"), maker.loaded.data.get("train") or {}
    if "dataloader" not in section:
        return
    try:
        with rng.preserved(), import_rules(maker.resolver.modules.judge):
            loader = Assembly(maker).build_loader(keys, section["dataloader"])
    except Exception:  # it may need the group of processes, or its variables
        return
    maker.call(keys, shared, loader, 0, processes, True)

"""The launchers that start processes: torchrun, Slurm and Open MPI. Each describes them in its own variables."""

from __future__ import annotations

import os
import re

from hookline.dialects.mmengine.errors import ConfigValueError
from hookline.errors import did_you_mean

#: The port at which processes meet, if nothing names another one.
PORT = "29500"
#: The variables of each launcher that become RANK, WORLD_SIZE and LOCAL_RANK.
VARIABLES = {
    "pytorch": {"RANK": "RANK", "WORLD_SIZE": "WORLD_SIZE", "LOCAL_RANK": "LOCAL_RANK"},
    "slurm": {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS", "LOCAL_RANK": "SLURM_LOCALID"},
    "mpi": {
        "RANK": "OMPI_COMM_WORLD_RANK",
        "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
        "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    },
}
STARTED_BY = {"pytorch": "torchrun", "slurm": "srun", "mpi": "mpirun"}


def check_launcher(launcher: str) -> str:
    """Return the launcher. Refuse an unknown one, and `none` in a process that is one of several."""
    known = ("none", *VARIABLES)
    if launcher not in known:
        raise ConfigValueError(f"unknown launcher {launcher!r}; {did_you_mean(str(launcher), known)}")
    processes = os.environ.get("WORLD_SIZE", "1")
    if launcher == "none" and processes != "1":
        raise ConfigValueError(
            f"launcher is 'none', but this process is one of {processes} (WORLD_SIZE), which would all write to the "
            "same folder; set launcher='pytorch'"
        )
    return launcher


def describe_processes(launcher: str, port: int | None = None) -> None:
    """Set torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT) from the launcher's."""
    if launcher not in VARIABLES:
        raise ConfigValueError(f"unknown launcher {launcher!r}; {did_you_mean(str(launcher), VARIABLES)}")
    names = VARIABLES[launcher]
    needed = [*names.values(), *(["SLURM_NODELIST"] if launcher == "slurm" else [])]
    needed += ["MASTER_ADDR"] if launcher != "slurm" else []
    missing = [name for name in needed if name not in os.environ]
    if missing:
        raise ConfigValueError(
            f"launcher is '{launcher}', but {', '.join(missing)} is not set; start the processes with "
            f"{STARTED_BY[launcher]}, or use launcher='none' for a single one"
        )
    os.environ.update({name: os.environ[theirs] for name, theirs in names.items()})
    if port is not None:
        os.environ["MASTER_PORT"] = str(port)
    os.environ.setdefault("MASTER_PORT", PORT)
    if launcher == "slurm":
        os.environ.setdefault("MASTER_ADDR", first_host(os.environ["SLURM_NODELIST"]))


def first_host(nodes: str) -> str:
    """Return the first host of a node list of Slurm.

    >>> first_host("gpu[003-006,9],login1"), first_host("rack[1-2]node[07,9]"), first_host("a,b")
    ('gpu003', 'rack1node07', 'a')
    """
    first = re.split(r",(?![^\[]*\])", nodes)[0]
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first)

"""`launch`: calls the main function of a script. torchrun or hookline's launcher starts several processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hookline.errors import ConfigError

__all__ = ["launch"]


def launch(run_fn: Callable[..., Any], gpus: int = 1, *, machines: int = 1, run_fn_args: Any = (), **more: Any) -> None:
    """Call the function in this process. For several, a launcher has to start them, each with this script."""
    wanted, found = gpus * machines, int(os.environ.get("WORLD_SIZE", "1"))
    if wanted > 1 and found == 1:
        nodes = f"--nnodes {machines} " if machines > 1 else ""
        raise ConfigError(
            f"{gpus} GPUs on {machines} machine(s) need a launcher that starts the processes: torchrun {nodes}"
            f"--nproc-per-node {gpus} -m hookline run-as imix SCRIPT ..., without --gpus and --machines"
        )
    run_fn(*run_fn_args)

"""A training in one of two processes, with or without a guest, started by torchrun."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from tests.faults.runs import digest
from tests.integrations.engines import run_in_lightning, run_in_transformers
from tests.integrations.hosts import CALLBACKS

#: Several kinds of hooks: records, norms, saves, a stop in one process.
HOOKS: list[Any] = [
    {"type": "GradNormHook", "interval": 1},
    {"type": "CheckpointHook", "interval": 1},
    "StatsMonitorHook",
]


def main(engine: str, folder: str, is_guest: bool, accumulate: int) -> None:
    """Train, and write what this process has seen."""
    callbacks = []
    if is_guest:
        callbacks = [CALLBACKS[engine](HOOKS, f"{folder}/run", {"logger": {"interval": 1}})]
    options: dict[str, Any] = {"accumulate": accumulate, "dropout": 0.5, "samples": 40}
    if engine == "Lightning":
        trained: Any = run_in_lightning(callbacks, strategy="ddp", devices=2, **options)
        model = trained
    else:
        trained = run_in_transformers(Path(folder), callbacks, ddp_backend="gloo", **options)
        model = trained.model
    seen = {
        "losses": trained.losses,
        "weights": digest(dict(model.state_dict())),
        "numbers": digest({"rng": torch.get_rng_state()}),
    }
    Path(f"{folder}/{'guest' if is_guest else 'alone'}_{os.environ['RANK']}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3] == "guest", int(sys.argv[4]))

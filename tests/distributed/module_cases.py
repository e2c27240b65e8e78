"""Hooks that watch modules in several processes: with DDP and FSDP, alone in the main process, and failing in one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hookline import Hook, Runner, on_module
from hookline.hooks import ActivationStatsHook
from tests.distributed.cases import main, seen
from tests.distributed.fsdp_cases import WRAPPED, build

STRATEGIES: dict[str, Any] = {"ddp": "ddp", "fsdp": WRAPPED}


class OnMain(Hook):
    """Watches in the main process only."""

    ranks = "main"

    def __init__(self) -> None:
        self.seen: list[tuple[int, str, int]] = []

    @on_module("1*", "backward", every=4)
    def see(self, runner: Runner, name: str, gradient: Tensor) -> None:
        """Note a gradient."""
        self.seen.append((runner.iter, name, len(gradient)))


class Fails(Hook):
    """Fails in one process."""

    @on_module("1.inner")
    def see(self, runner: Runner) -> None:
        """Fail."""
        if runner.rank == 1 and runner.iter == 2:
            raise ValueError("planted")


def train(folder: str, strategy: str, *hooks: Hook, **parts: Any) -> dict[str, Any]:
    """Train with windows of two batches, and return the bits of the result and the numbers of this process."""
    runner = build(
        folder,
        STRATEGIES[strategy],
        samples=48,
        custom_hooks=list(hooks),
        default_hooks={"logger": {"interval": 1}},
        **{"accumulate": 2, "epochs": 2, "plain": False, **parts},
    )
    runner.train()
    numbers = {
        name: history.last()
        for name, history in runner.hub.scalars.items()
        if name.startswith(("train/activations/", "train/gradients/"))
    }
    drawn = hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()
    return {"hash": seen(runner)["hash"], "drawn": drawn, "numbers": numbers, "iter": runner.iter}


def records(folder: str) -> list[dict[str, float]]:
    """Return the numbers of the modules in the file of the run."""
    lines = [json.loads(line) for line in Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
    numbers = [
        {name: each[name] for name in each if name.startswith(("train/activations/", "train/gradients/"))}
        for each in lines
    ]
    return [each for each in numbers if each]


def watched(folder: str) -> dict[str, Any]:
    """Train with and without hooks that watch, and resume, with each strategy."""
    found: dict[str, Any] = {}
    for strategy in STRATEGIES:
        on_main, place = OnMain(), f"{folder}/{strategy}"
        found[strategy] = {
            "without": train(f"{place}/without", strategy),
            "with": train(f"{place}/with", strategy, ActivationStatsHook(["*", ""], interval=4), on_main),
            "on_main": on_main.seen,
        }
        train(f"{place}/again", strategy, ActivationStatsHook(["*", ""], interval=4), epochs=1)
        found[strategy]["resumed"] = train(
            f"{place}/again", strategy, ActivationStatsHook(["*", ""], interval=4), resume=True
        )
        found[strategy]["records"] = [records(f"{place}/{name}") for name in ("with", "again")]
    return found


def failing(folder: str) -> dict[str, Any]:
    """Fail in a watch of one process."""
    return train(folder, "ddp", Fails())


if __name__ == "__main__":
    main(globals())

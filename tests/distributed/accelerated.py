"""The cases of accelerate: several trainings in one start, because starting processes takes longer than training."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from accelerate.utils import GradScalerKwargs  # type: ignore[import-untyped]

from hookline.errors import ConfigError, DistributedError
from tests.distributed.cases import ACTS, At, build, main, seen, train

#: Trainings by name: an even and an uneven last batch, one too small for every process, a window, and clipping.
TRAININGS: dict[str, dict[str, Any]] = {
    "even": {"samples": 48},
    "uneven": {"samples": 50},
    "small": {"samples": 49},
    "windows": {"samples": 50, "accumulate": 4},
    "clipped": {"samples": 48, "clip": 0.05},
}


def trainings(folder: str, *strategies: str) -> dict[str, Any]:
    """Train everything with each strategy."""
    return {
        strategy: {
            name: train(f"{folder}/{strategy}/{name}", strategy=strategy, **given) for name, given in TRAININGS.items()
        }
        for strategy in strategies
    }


def launched(folder: str) -> dict[str, Any]:
    """Train as `accelerate launch` says, then in the same precision with DDP, and then until a signal."""
    runner = build(f"{folder}/auto")
    runner.train()
    strategy: Any = runner.strategy
    with pytest.raises(ConfigError) as refused:
        build(f"{folder}/refused", precision="fp16")
    other = build(f"{folder}/ddp", strategy="ddp", precision="bf16")
    other.train()
    with pytest.raises(SystemExit) as ended:
        build(f"{folder}/ended", custom_hooks=[At(5, 1, ACTS["SIGTERM"])]).train()
    return {
        "found": [strategy.name, runner.precision, strategy.accelerator.mixed_precision, str(runner.device)],
        "refused": str(refused.value),
        "hashes": [seen(runner)["hash"], seen(other)["hash"]],
        "dtype": str(runner.wrapped(torch.zeros(1, 8)).dtype),
        "code": ended.value.code,
    }


def begun(folder: str) -> dict[str, Any]:
    """Train to the end, and only the first epoch of another run."""
    train(f"{folder}/changing", 48, epochs=1, strategy="accelerate")
    return train(f"{folder}/straight", 48, strategy="accelerate")


def given(folder: str) -> dict[str, Any]:
    """Resume with an Accelerator that is already there, and then fail in one process that stays."""
    accelerator = Accelerator(cpu=True, kwargs_handlers=[GradScalerKwargs(init_scale=8.0)])
    resumed = train(f"{folder}/changing", 48, resume=True, strategy=accelerator)
    runner = build(f"{folder}/failed", strategy=accelerator, custom_hooks=[At(5, 1, ACTS["raise"])])
    with pytest.raises((ValueError, DistributedError)) as failed:
        runner.train()
    named = Path(folder, "named")
    if runner.rank == 0:
        named.touch()
    while not named.exists():  # as long as this process is there, only a closed connection tells the other one
        time.sleep(0.02)
    return resumed | {
        "scale": runner.strategy.new_scaler(runner.device).get_scale(),
        "failed": str(failed.value),
    }


def alone(folder: str) -> dict[str, Any]:
    """Return the number of processes that the strategy found."""
    runner = build(folder)
    runner.train()
    return {"found": [runner.strategy.name, runner.rank, runner.world_size], "hash": seen(runner)["hash"]}


if __name__ == "__main__":
    main(globals())

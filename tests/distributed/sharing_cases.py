"""Loaders of every kind in two processes: which samples each of them trains on, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset, WeightedRandomSampler

from hookline import Optim, Runner, TrainLoop
from tests.distributed.cases import iter_of, main, stream_of

RANK = int(os.environ.get("RANK", "0"))
DATA = TensorDataset(torch.arange(23.0))


class Own(BatchSampler):
    """A batch sampler of a user."""


LOADERS: dict[str, Any] = {
    "weights": lambda: DataLoader(DATA, 4, sampler=WeightedRandomSampler([1.0] * 23, 23)),
    "own": lambda: DataLoader(DATA, batch_sampler=Own(RandomSampler(DATA), 4, False)),
    "stream": lambda: stream_of([(torch.arange(2.0) + number,) for number in range(4)]),
    "shared_stream": lambda: stream_of([(torch.arange(2.0) + number,) for number in range(RANK, 8, 2)]),
    "listed": lambda: iter_of([(torch.arange(2.0) + number,) for number in range(4)]),
    "seeds": lambda: DataLoader(
        DATA, 4, sampler=WeightedRandomSampler([1.0] * 23, 23, generator=torch.Generator().manual_seed(RANK))
    ),
    "batch_size": lambda: DataLoader(DATA, 4 + RANK, shuffle=True),
    "shuffle": lambda: DataLoader(DATA, 4, shuffle=not RANK),
}


def train(folder: str, name: str) -> dict[str, Any]:
    """Train two epochs, and return the samples of each step, and the warnings."""
    seen: list[list[float]] = []

    def step(model: nn.Module, batch: list[Tensor]) -> Tensor:
        seen.append(batch[0].tolist())
        loss: Tensor = model(batch[0][:, None]).mean()
        return loss

    model = nn.Linear(1, 1)
    work_dir = Path(folder, name)
    runner = Runner(
        model,
        train=TrainLoop(LOADERS[name](), step, max_epochs=2),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=0.01)),
        default_hooks={"checkpoint": None},
        work_dir=work_dir,
        device="cpu",
        quiet=True,
    )
    runner.train()
    text = (work_dir / "run.log").read_text() if (work_dir / "run.log").exists() else ""
    return {"seen": seen, "warned": [line for line in text.splitlines() if "every process reads" in line]}


def several(folder: str, names: list[str]) -> dict[str, Any]:
    """Train with several loaders, one after the other."""
    return {name: train(folder, name) for name in names}


def refused(folder: str, name: str) -> dict[str, Any]:
    """Train with a loader that differs between the processes."""
    return train(folder, name)


if __name__ == "__main__":
    main(globals())

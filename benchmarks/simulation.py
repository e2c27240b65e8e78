"""Runs of simulated steps: the step of the user computes nothing, so that only the cost of the engine is left."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import nn

from hookline import Optim, Runner, TrainLoop

MB = 2**20
LOSS = torch.tensor(1.0)


class Simulation:
    """The data of a run: the same batch again and again, without taking any memory.

    It reads the CPU time when it hands out a batch whose number is in `marks`.
    """

    def __init__(self, marks: Sequence[int]) -> None:
        self.marks = marks
        #: The time when the steps before a mark were over, and when the steps after it began.
        self.seen: list[tuple[float, float]] = []
        self.memory: list[float] = []

    def __len__(self) -> int:
        return self.marks[-1] + 1

    def __iter__(self) -> Iterator[int]:
        for earlier, later in pairwise([0, *self.marks]):
            yield from repeat(0, later - earlier)
            self._mark()
        yield 0

    def _mark(self) -> None:
        over = time.process_time()
        gc.collect()
        self.memory.append(psutil.Process().memory_info().rss / MB)
        self.seen.append((over, time.process_time()))

    @property
    def microseconds(self) -> list[float]:
        """Return the CPU time per step between each two marks."""
        counts = [later - earlier for earlier, later in pairwise(self.marks)]
        return [
            (over - began) / n * 1e6 for ((_, began), (over, _)), n in zip(pairwise(self.seen), counts, strict=True)
        ]


def no_work(model: nn.Module, batch: int, optim: Optim) -> dict[str, torch.Tensor]:
    """Compute nothing. A step that takes the optim decides itself when it updates."""
    return {"loss": LOSS}


def simulate(marks: Sequence[int], step: Callable[..., Any] = no_work, **parts: Any) -> Simulation:
    """Make a run of simulated steps. With a `val`, it validates every `val_interval` steps."""
    data = Simulation(marks)
    model = parts.pop("model", None) or nn.Linear(1, 1)
    optimizer = parts.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=0.1)
    length: dict[str, Any] = {"max_epochs": 1}
    if "val" in parts:
        length = {"max_iters": len(data), "val_interval": parts.pop("val_interval")}
    with tempfile.TemporaryDirectory() as folder:
        Runner(
            model,
            train=TrainLoop(data, step, **length),
            optim=Optim(optimizer, schedulers=parts.pop("schedulers", [])),
            work_dir=Path(folder) / "run",
            device="cpu",
            quiet=True,
            **parts,
        ).train()
    return data

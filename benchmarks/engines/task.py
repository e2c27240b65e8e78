"""Task: the training that every engine does, and the clock that measures its steps.

The clock is part of the step, which is the same function for all engines. It reads the time when a step begins: once
after some steps to warm up, and once at the last step. Everything that an engine does between these two moments counts.
The time before the first step and from the last step on is measured separately.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

#: How often numbers are recorded, in steps, if a run records any. Measured steps are a multiple of it.
INTERVAL = 10
#: The factor of the learning rate per step, small enough to leave the training as it is.
DECAY = 0.9999


class Batches(list[Any]):
    """The batches of one epoch, prepared in advance, because loading is not what is compared."""

    batch_size = None
    sampler = None

    @property
    def dataset(self) -> Any:
        """Return the data itself, which some engines ask for."""
        return self


@dataclass(frozen=True)
class Model:
    """A model with its data: what a step computes."""

    name: str
    make: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], tuple[Tensor, Tensor]]
    optimizer: Callable[[Any], torch.optim.Optimizer]
    #: The number of measured steps, which take about half a second in a bare loop.
    steps: int


class Times(NamedTuple):
    """The seconds of a step (wall clock, CPU time), those before the first step, and those from the last step on."""

    wall: float
    cpu: float
    start: float
    end: float


class Task:
    """One run: the parts that an engine trains, and where it may write."""

    def __init__(self, model: Model, folder: Path, everything: bool, steps: int | None = None) -> None:
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(0)
        self.folder = folder
        #: Whether to train with logging, a progress bar and checkpoints, or with nothing but the loop.
        self.everything = everything
        self.model = model.make()
        self.optimizer = model.optimizer(self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, DECAY)
        self.measured = steps or model.steps
        self.warmup = max(INTERVAL, self.measured // 10)
        #: The total number of steps. The last one only ends the measurement.
        self.steps = self.warmup + self.measured + 1
        several = [model.batch(generator) for _ in range(50)]
        self.data = Batches(several[i % 50] for i in range(self.steps))
        self._count = 0
        self._next = 0
        self._marks: list[tuple[float, float]] = []

    def loss_of(self, model: Any, batch: Any) -> Tensor:
        """Compute the loss of a batch. Every engine calls this once per step."""
        if self._count == self._next:
            self._mark()
        self._count += 1
        inputs, target = batch
        return nn.functional.cross_entropy(model(inputs), target)

    def _mark(self) -> None:
        self._next = self.warmup if self._count == 0 else self.steps - 1
        if self._count == self.warmup:
            gc.collect()  # objects created before this moment are not a cost of the steps after it
        self._marks.append((time.perf_counter(), time.process_time()))

    def run(self, train: Callable[[Task], None]) -> Times:
        """Train with an engine, and return what it took."""
        began = time.perf_counter()
        train(self)
        ended = time.perf_counter()
        if self._count != self.steps or len(self._marks) != 3:
            raise RuntimeError(f"it made {self._count} steps instead of {self.steps}")
        (first, _), (wall, cpu), (last, last_cpu) = self._marks
        per_step = (last - wall) / self.measured
        return Times(per_step, (last_cpu - cpu) / self.measured, first - began, ended - last)

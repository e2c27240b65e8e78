"""Cases in which one process is slower than the other. `tests.distributed.test_rank_times` starts them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from hookline import Hook, Runner, TrainLoop
from hookline.hooks import RankTimesHook
from tests.distributed import cases

#: Far more than the rest of a step takes.
SLOW = 0.3


class Slow(torch.autograd.Function):
    """Sleeps in the backward pass."""

    @staticmethod
    def forward(context: Any, value: Tensor) -> Tensor:
        """Return the value."""
        return value.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        """Sleep in one process."""
        if os.environ["RANK"] == "1":
            time.sleep(SLOW)
        return gradient


class Sleeps(Hook):
    """Sleeps around the forward pass."""

    def around_forward(self, runner: Runner) -> Iterator[None]:
        """Sleep in one process."""
        if runner.rank == 1:
            time.sleep(SLOW)
        yield


def slow(folder: str, part: str) -> dict[str, Any]:
    """Let one process be slow in one part of its steps."""
    runner: Any = None

    def step(model: nn.Module, batch: list[Tensor]) -> Tensor:
        if part == "forward" and runner.rank == 1:
            time.sleep(SLOW)
        outputs = model(batch[0])
        if part == "backward":
            outputs = Slow.apply(outputs)  # type: ignore[no-untyped-call]  # torch has no annotations here
        return nn.functional.cross_entropy(outputs, batch[1])

    data = TensorDataset(torch.randn(24, 8), torch.randint(3, (24,)))
    hook = RankTimesHook(interval=2)
    train = TrainLoop(DataLoader(data, batch_size=4), step, max_epochs=3)
    runner = cases.build(folder, train=train, custom_hooks=[hook, *([Sleeps()] if part == "hooks" else [])])
    runner.train()
    scalars = runner.hub.scalars
    names = sorted(name for name in scalars if name.startswith("train/ranks/"))
    values = {name: list(scalars[name].values) for name in names}
    return cases.seen(runner) | {"values": values, "left": len(hook._handles)}


if __name__ == "__main__":
    cases.main(globals())

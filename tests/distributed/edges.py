"""Cases at the edges: little data, late requests, workers that get a signal. `test_edges` starts them."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed
from torch.utils.data import DataLoader, TensorDataset

from hookline import EvalLoop, TrainLoop
from hookline.engine.metrics import accuracy
from tests.distributed import cases

if TYPE_CHECKING:
    from hookline import Runner


def small_validation(folder: str, samples: int) -> dict[str, Any]:
    """Validate on fewer samples than there are processes, or on a single batch of a list."""
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(4, 8), torch.arange(4) % 3)
    loader: Any = DataLoader(TensorDataset(*data[:samples])) if samples else [data[:4]]
    val = EvalLoop(loader, cases.predict, metrics={"accuracy": accuracy}, loss=cases.step)
    runner = cases.build(folder, epochs=1, val=val)
    found: list[dict[str, Any]] = []
    runner.on("after_val_epoch")(lambda runner, metrics: found.append(dict(metrics)))
    runner.train()
    return cases.seen(runner) | {"metrics": found}


def failing_trial(folder: str, prepared: bool, strategy: str) -> dict[str, Any]:
    """Fail in one process while a test batch is tried before training. A hook may have to prepare that batch."""

    def predict(model: Any, batch: Any) -> Any:
        if runner.rank == 1:
            raise ValueError("planted")
        return cases.predict(model, batch)

    data = TensorDataset(torch.randn(16, 8), torch.randint(3, (16,)))
    test = EvalLoop(DataLoader(data, batch_size=4), predict, metrics={"accuracy": accuracy})
    runner = cases.build(folder, epochs=1, test=test, strategy=strategy)
    if prepared:
        runner.on("before_test_iter")(prepare)
    runner.train()
    return cases.seen(runner)


def prepare(runner: Runner) -> None:
    """Prepare nothing."""


def late_request(folder: str) -> dict[str, Any]:
    """Ask for a save in one process, at the end of training."""

    def ask(runner: Runner) -> None:
        if runner.rank == 1:
            runner.request_save("late.pth")

    runner = cases.build(folder, epochs=1)
    runner.on("after_train")(ask)
    runner.train()
    return cases.seen(runner)


def little_data(folder: str) -> dict[str, Any]:
    """Train on fewer samples than there are processes."""
    cases.build(folder, samples=1, val=None).train()
    return {}


def signaled_workers(folder: str) -> dict[str, Any]:
    """Send SIGTERM to a process and to the workers of its loader, as a job scheduler does."""

    def end(runner: Runner) -> None:
        processes = [os.getpid(), *(worker.pid for worker in multiprocessing.active_children())]
        subprocess.run(["kill", "-TERM", *map(str, processes)], check=True)

    torch.manual_seed(1)
    data = TensorDataset(torch.randn(4000, 8), torch.randint(3, (4000,)))
    loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=1)
    train = TrainLoop(loader, cases.step, max_epochs=3)
    cases.build(folder, train=train, custom_hooks=[cases.At(9, 1, end)]).train()
    return {}


def several_runs(folder: str) -> dict[str, Any]:
    """Train twice in the same processes."""
    groups = []
    for number in range(2):
        cases.build(f"{folder}/{number}", epochs=1).train()
        groups.append(len(distributed.distributed_c10d._world.pg_map))
    return {"groups": groups}


if __name__ == "__main__":
    cases.main(globals())

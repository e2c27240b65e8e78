"""Hooks of hookline that several processes need, and what DDP sends."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from hookline import Hook, Optim, Runner, TrainLoop
from hookline.errors import DistributedError
from tests.distributed.cases import build, main, seen, step


class Epochs(DistributedSampler[Any]):
    """A sampler that remembers its epochs, and what it returned in each of them."""

    def __init__(self, dataset: Any, rank: int) -> None:
        super().__init__(dataset, 2, rank, shuffle=True)
        self.epochs: list[int] = []
        self.orders: list[list[int]] = []

    def __iter__(self) -> Any:
        order = list(super().__iter__())
        self.epochs.append(self.epoch)
        self.orders.append(order)
        return iter(order)


def buffers_of(model: nn.Module) -> list[float]:
    """Return all buffers."""
    return torch.cat([buffer.double().flatten() for buffer in model.buffers()]).tolist()


def buffers(folder: str) -> dict[str, Any]:
    """Train a model with statistics, and look at them before and after they are averaged."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    data = TensorDataset(torch.randn(24, 8), torch.randint(3, (24,)))
    runner = Runner(
        model,
        train=TrainLoop(DataLoader(data, batch_size=4), step, max_epochs=2),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=0.1)),
        custom_hooks=["SyncBuffersHook"],
        work_dir=f"{folder}/buffers",
        device="cpu",
        quiet=True,
    )
    before: list[Any] = []
    after: list[Any] = []
    runner.on("after_train_epoch", priority="HIGHEST")(lambda runner: before.append(buffers_of(model)))
    runner.on("after_train_epoch", priority="LOWEST")(lambda runner: after.append(buffers_of(model)))
    runner.train()
    return {"before": before, "after": after}


def epochs(folder: str) -> dict[str, Any]:
    """Train with a sampler of the user, and with a plain loader, which hookline shares."""
    import os

    data = TensorDataset(torch.randn(16, 8), torch.randint(3, (16,)))
    sampler = Epochs(data, int(os.environ["RANK"]))
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    build(f"{folder}/own", train=TrainLoop(loader, step, max_epochs=3)).train()
    read: list[list[float]] = [[], []]
    numbered = TensorDataset(torch.arange(16.0).repeat(8, 1).T, torch.zeros(16, dtype=torch.int64))

    def note(model: nn.Module, batch: list[Tensor]) -> Tensor:
        read[runner.epoch] += batch[0][:, 0].tolist()
        return step(model, batch)

    runner = build(
        f"{folder}/plain", train=TrainLoop(DataLoader(numbered, batch_size=4, shuffle=True), note, max_epochs=2)
    )
    runner.train()
    return {"epochs": sampler.epochs, "orders": sampler.orders, "read": read}


def messages(folder: str, accumulate: int) -> dict[str, Any]:
    """Count how often the gradients are averaged."""
    runner, calls = build(folder, samples=64, accumulate=accumulate, epochs=1), []

    def average(state: None, bucket):  # type: ignore[no-untyped-def]  # torch reads the annotations
        calls.append(bucket)
        return default_hooks.allreduce_hook(torch.distributed.distributed_c10d._get_default_group(), bucket)

    runner.on("before_train")(lambda runner: runner.wrapped.register_comm_hook(None, average))
    runner.train()
    return {"messages": len(calls), "updates": runner.updates, "iter": runner.iter, "hash": seen(runner)["hash"]}


class Writes(Hook):
    """Writes a number of its own after each iteration, and fails in one process at the end."""

    priority = "LOWEST"

    def __init__(self, fails_at: int = 0) -> None:
        self.fails_at = fails_at

    def after_train_iter(self, runner: Runner) -> None:
        runner.writers.write_scalars({"own": float(runner.iter)}, runner.iter + 1)
        if runner.iter + 1 == self.fails_at and runner.rank == 1:
            raise ValueError("planted")


def records_of(folder: str, fails_at: int = 0, **parts: Any) -> list[tuple[int, str]]:
    """Train with a record of every iteration, and return the steps that were written, with their kind."""
    hooks = {"logger": {"interval": 1}, "checkpoint": {"interval": 3, "by_epoch": False, "max_keep_ckpts": -1}}
    runner = build(folder, samples=64, epochs=2, default_hooks=hooks, custom_hooks=[Writes(fails_at)], **parts)
    with suppress(ValueError, DistributedError):
        runner.train()
    found = [json.loads(line) for line in Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
    return [(each["step"], "own" if "own" in each else "val" if "val/loss" in each else "train") for each in found]


def records(folder: str) -> dict[str, Any]:
    """Return the records of a run, and of the same run resumed from an iteration in the middle of an epoch."""
    whole = records_of(folder)
    return {"whole": whole, "resumed": records_of(folder, resume=f"{folder}/run/iter_3.pth")}


def failing_records(folder: str) -> dict[str, Any]:
    """Return the records of a run in which another process fails."""
    return {"records": records_of(folder, fails_at=6)}


def all_of_it(folder: str) -> dict[str, Any]:
    """Run everything above."""
    found = {"buffers": buffers(folder), "epochs": epochs(folder)}
    return found | {str(each): messages(f"{folder}/{each}", each) for each in (1, 4)}


if __name__ == "__main__":
    main(globals())

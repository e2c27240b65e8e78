"""Cases in which one process of two gets a signal. `tests.distributed.test_signals` starts them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hookline import EvalLoop
from hookline.common import launched
from hookline.engine.metrics import accuracy
from tests.distributed import cases


def terminate() -> None:
    """Send SIGTERM to this process only."""
    os.kill(os.getpid(), signal.SIGTERM)


def in_validation(folder: str, batches: list[int], saved: bool, resume: bool = False) -> dict[str, Any]:
    """Get a signal in the first validation, in which the processes have different numbers of batches."""
    rank, evaluated, begun = int(os.environ["RANK"]), [0], [False]

    def predict(model: nn.Module, batch: list[Tensor]) -> tuple[Tensor, Tensor]:
        evaluated[0] += begun[0]  # not the trial batch
        if evaluated[0] == 3 and rank == 1 and not resume:
            terminate()
        return cases.predict(model, batch)

    torch.manual_seed(2)
    data = [(torch.randn(4, 8), torch.randint(3, (4,))) for _ in range(3 if resume else batches[rank])]
    runner = cases.build(
        folder,
        val=EvalLoop(cases.iter_of(data), predict, loss=cases.step),
        default_hooks={"checkpoint": {"interval": 1 if saved else 3}},
        resume=resume,
    )
    runner.on("before_train")(lambda runner: begun.__setitem__(0, True))
    try:
        runner.train()
    except SystemExit as end:
        return cases.seen(runner) | {"evaluated": evaluated[0], "code": end.code}
    return cases.seen(runner) | {"evaluated": evaluated[0], "code": 0}


def in_validation_with_actor(folder: str, batches: list[int]) -> dict[str, Any]:
    """Get a signal in a validation that cannot be left, and that lasts longer than the launcher waits."""
    os.environ[launched.GRACE] = "0"
    rank, evaluated = int(os.environ["RANK"]), [0]

    def predict(model: nn.Module, batch: list[Tensor]) -> tuple[Tensor, Tensor]:
        evaluated[0] += 1
        if evaluated[0] == 3 and rank == 1:
            terminate()
        return cases.predict(model, batch)

    data = [(torch.randn(4, 8), torch.randint(3, (4,))) for _ in range(batches[rank])]
    runner = cases.build(
        folder,
        val=EvalLoop(cases.iter_of(data), predict, loss=cases.step),
        default_hooks={"checkpoint": {"interval": 3}},
        trial_batch=False,
    )
    runner.on("before_val_iter")(lambda runner: None)
    try:
        runner.train()
    except SystemExit as end:
        return cases.seen(runner) | {"evaluated": evaluated[0], "code": end.code}
    return cases.seen(runner) | {"evaluated": evaluated[0], "code": 0}


def in_save(folder: str) -> dict[str, Any]:
    """Get a signal while the main process writes a checkpoint to a slow disk."""
    runner = cases.build(folder, default_hooks={"checkpoint": {"by_epoch": False, "interval": 2}})
    asked = Path(folder, "asked")

    def before_save(runner: Any) -> None:
        if runner.rank == 1:
            terminate()
            asked.touch()
        else:
            while not asked.exists():
                time.sleep(0.01)
            time.sleep(0.5)  # the other process waits for the file by now; if it does not yet, this changes nothing

    runner.on("before_save_checkpoint")(before_save)
    try:
        runner.train()
    except SystemExit as end:
        return cases.seen(runner) | {"code": end.code}
    return cases.seen(runner)


def in_warmup(folder: str) -> dict[str, Any]:
    """Get a signal in the trial validation, before the first iteration."""

    def predict(model: nn.Module, batch: list[Tensor]) -> tuple[Tensor, Tensor]:
        if runner.rank == 1:
            terminate()
        return cases.predict(model, batch)

    data = [(torch.randn(4, 8), torch.randint(3, (4,)))] * 4
    val = EvalLoop(data, predict, metrics={"accuracy": accuracy})
    runner = cases.build(folder, val=val, default_hooks={"checkpoint": {"save_best": "accuracy"}})
    try:
        runner.train()
    except SystemExit as end:
        return cases.seen(runner) | {"code": end.code}
    return cases.seen(runner)


if __name__ == "__main__":
    cases.main(globals())

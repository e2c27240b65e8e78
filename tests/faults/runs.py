"""A run with many parts that a resume could get wrong, and the digest of its whole state before every iteration.

It has dropout, batch norm, augmentation that draws from three generators (in workers), momentum, a cosine schedule,
averaged weights, a gradient scaler, accumulation, early stopping, best checkpoints, and a hook with its own state.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from hookline import EvalLoop, Hook, Runner, TrainLoop, cli
from hookline.cli.app import Commands
from hookline.data.loader import ResumableLoader
from hookline.engine.metrics import accuracy
from hookline.engine.steps import cross_entropy, predict
from hookline.hooks import EarlyStoppingHook, EMAHook
from hookline.state import snapshot
from hookline.testing import toy_data
from tests.faults.kinds import KINDS, optim_of

DIGESTS = "digests.txt"
SAMPLES, BATCH = 44, 4
EPOCHS = 5


class Augmented(Dataset[tuple[Tensor, Tensor]]):
    """Samples with noise from all three random generators."""

    def __init__(self) -> None:
        self.inputs = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        noise = 0.1 * torch.randn(4) + 0.1 * float(np.random.rand()) + 0.1 * random.random()
        return self.inputs[index] + noise, (self.inputs[index].sum() > 0).long()


class Remembers(Hook):
    """A hook with a state: the sum of all losses, and the sum of the random numbers that it drew."""

    def __init__(self) -> None:
        self.total, self.drawn = torch.zeros(()), 0.0

    def after_train_iter(self, runner: Any, outputs: dict[str, Any]) -> None:
        self.total = self.total + outputs["loss"]
        self.drawn += float(torch.rand(1)) + float(np.random.rand()) + random.random()

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "drawn": self.drawn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total, self.drawn = state["total"], state["drawn"]


class Digests(Hook):
    """Writes the digest of the whole state to a file before every iteration, one line each."""

    priority = "LOWEST"
    role = "observer"

    def before_train_iter(self, runner: Runner) -> None:
        self._write(runner, str(runner.iter))

    def after_run(self, runner: Runner) -> None:
        self._write(runner, "end")

    def _write(self, runner: Runner, where: str) -> None:
        line = f"{where} {digest(snapshot.take(runner._host))}\n"
        file = os.open(runner.work_dir / DIGESTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, line.encode())
        os.close(file)


def digest(checkpoint: Mapping[str, Any]) -> str:
    """Return the SHA-256 of every part of a checkpoint, without times, the folder, and facts for people."""
    return ",".join(f"{key}={_hash(part, key)}" for key, part in checkpoint.items() if key not in ("meta", "writers"))


def _hash(part: Any, name: str) -> str:
    found = hashlib.sha256()

    def add(value: Any, place: str) -> None:
        if place.endswith((".time", "/time", "data_time", "eta")):
            return
        if isinstance(value, Tensor):
            found.update(f"{place}{value.dtype}{tuple(value.shape)}".encode())
            found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                add(inner, f"{place}.{key}")
        elif isinstance(value, (list, tuple)):
            for index, inner in enumerate(value):
                add(inner, f"{place}.{index}")
        else:
            found.update(f"{place}={value!r};".encode())

    add(part, name)
    return found.hexdigest()


def everything(folder: str | Path, kind: str = "workers", **parts: Any) -> Runner:
    """Build the run of a kind; `kinds` describes them."""
    torch.manual_seed(3)
    how = KINDS[kind]
    model = how.make_model()
    more = dict(how.more(model))
    length = {"max_epochs": EPOCHS} if how.by_epoch else {"max_iters": 11 * EPOCHS}
    loader: Any = ResumableLoader(
        Augmented(), BATCH, shuffle=True, num_workers=how.workers, persistent_workers=how.persistent
    )
    if how.plain:
        loader = DataLoader(Augmented(), BATCH, shuffle=True)
    if "loader" in more:
        loader = more.pop("loader")(Augmented())
    step = more.pop("step", cross_entropy)
    hooks = [EMAHook(momentum=0.1), EarlyStoppingHook(monitor="accuracy", patience=100), Remembers()]
    checkpoint = {"interval": 3, "by_epoch": False, "max_keep_ckpts": 2, "save_best": "accuracy"}
    given: dict[str, Any] = {
        "train": TrainLoop(
            loader, step, val_interval=1 if how.by_epoch else 7, weigh=more.pop("weigh", None), **length
        ),
        "val": EvalLoop(toy_data(2), predict, metrics={"accuracy": accuracy}),
        "default_hooks": {"logger": {"interval": 3}, "checkpoint": checkpoint | {"async_save": how.async_save}},
        "precision": "fp16",
        "resume": True,
        **({} if "optim" in more else {"optim": optim_of(model.parameters(), how.accumulate)}),
        **more,
        "custom_hooks": [*hooks, *more.get("custom_hooks", ()), Digests()],
        **parts,
    }
    return Runner(model, work_dir=folder, quiet=True, device="cpu", **given)


def train(folder: str, kind: str, **parts: Any) -> None:
    """Train the run of a kind; called in a child."""
    torch.set_num_threads(1)
    KINDS[kind].train(everything(folder, kind, **parts))


def as_command(function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function as the command line does: an error becomes a message and an exit code."""
    cli.app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)
    cli.app.callback()(lambda: None)
    cli.app.command("run")(lambda: function(*arguments))
    sys.argv = ["hookline", "run"]
    cli.main()


def digests(folder: Path) -> list[tuple[str, str]]:
    """Return the lines of the digest hook, in order: the iteration (or `end`), and the digest there."""
    path = folder / DIGESTS
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [(where, found) for line in lines if line.endswith("\n") for where, found in [line.split()]]

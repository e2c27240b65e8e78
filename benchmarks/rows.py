"""The work that is compared: the same with hookline and without, as functions of how often it is done.

Each group has a reference, which is its first case: a loop written by hand, or torch's own loader.
"""

from __future__ import annotations

import io
import random
import tempfile
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from engines import bare
from engines.models import MODELS
from engines.task import Batches, Task
from hookline import EvalLoop, Runner
from hookline.data import ResumableLoader
from hookline.engine.steps import predict
from hookline.metrics import accuracy
from overhead import make_model
from peers import ENGINES

Work = Callable[[int], Any]

MLP = MODELS[0]
SAMPLES = 1024
IMAGES = torch.rand(SAMPLES, 3, 32, 32)
CLASSES = torch.arange(SAMPLES) % 10


def training(train: Callable[[Task], None], everything: bool, steps: int) -> None:
    """Train the small MLP."""
    with tempfile.TemporaryDirectory() as folder:
        task = Task(MLP, Path(folder), everything, steps=10)
        task.data, task.steps = Batches(task.data[:1] * steps), steps
        train(task)


def with_engine(module: str, everything: bool, steps: int) -> None:
    """Train with an engine, which is imported only here: not every environment has all of them."""
    with redirect_stdout(io.StringIO()):
        training(import_module(module).train, everything, steps)


def trainings() -> dict[str, dict[str, Work]]:
    """Return the trainings of all engines, alone and with everything on, against a bare loop with nothing else."""
    by_hand: dict[str, Work] = {"bare loop": partial(training, bare.train, False)}
    alone = {engine.name: partial(with_engine, engine.module, False) for engine in ENGINES}
    written: dict[str, Work] = {"by hand": partial(training, bare.train_by_hand, True)}
    everything = {engine.name: partial(with_engine, engine.module, True) for engine in ENGINES}
    return {"a step": by_hand | alone, "a step, everything on": by_hand | written | everything}


class Cropped(Dataset[Any]):
    """Images that are cropped and flipped at random."""

    def __init__(self, draw: Callable[[], tuple[int, int, bool]]) -> None:
        self.draw = draw

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        top, left, flips = self.draw()
        image = IMAGES[index, :, top : top + 24, left : left + 24]
        return image.flip(-1) if flips else image, CLASSES[index]


def draw_from_torch() -> tuple[int, int, bool]:
    """Draw as torchvision does."""
    top, left = torch.randint(0, 9, (2,)).tolist()
    return top, left, bool(torch.rand(()) < 0.5)


def draw_from_numpy() -> tuple[int, int, bool]:
    """Draw with numpy's functions."""
    return np.random.randint(9), np.random.randint(9), np.random.rand() < 0.5


def draw_from_python() -> tuple[int, int, bool]:
    """Draw with Python's functions."""
    return random.randrange(9), random.randrange(9), random.random() < 0.5


def loading(make: Callable[..., Any], data: Any, batches: int) -> None:
    """Read batches of 64 samples in random order, over as many passes as needed."""
    loader, left = make(data, batch_size=64, shuffle=True), batches
    while left > 0:
        left -= sum(1 for _ in zip(range(left), loader, strict=False))


def loadings() -> dict[str, dict[str, Work]]:
    """Return the reading of several datasets, with torch's loader and with ours."""
    datasets = {
        "draws from torch": Cropped(draw_from_torch),
        "draws from numpy": Cropped(draw_from_numpy),
        "draws from random": Cropped(draw_from_python),
        "draws nothing": Cropped(lambda: (4, 4, False)),
        "a TensorDataset": TensorDataset(IMAGES, CLASSES),
    }
    return {
        f"a batch of 64 samples: {name}": {
            "DataLoader": partial(loading, DataLoader, data),
            "ResumableLoader": partial(loading, ResumableLoader, data),
        }
        for name, data in datasets.items()
    }


def evaluate_by_hand(data: list[Any]) -> None:
    """Evaluate as people write it."""
    model, total, samples = make_model().eval(), 0.0, 0
    with torch.no_grad():
        for batch in data:
            preds, target = predict(model, batch)
            total += accuracy(preds, target).item() * len(target)
            samples += len(target)


def evaluate(data: list[Any]) -> None:
    """Evaluate with a Runner."""
    with tempfile.TemporaryDirectory() as folder:
        loop = EvalLoop(data, predict, metrics={"accuracy": accuracy})
        Runner(make_model(), val=loop, work_dir=folder, device="cpu", quiet=True).val()


def evaluations() -> dict[str, dict[str, Work]]:
    """Return evaluations of small batches."""
    batch = torch.randn(16, 64), torch.arange(16) % 10
    cases: dict[str, Work] = {
        "bare loop": lambda batches: evaluate_by_hand([batch] * batches),
        "hookline": lambda batches: evaluate([batch] * batches),
    }
    return {"a batch of an evaluation": cases}


def in_dialects() -> dict[str, dict[str, Work]]:
    """Return trainings in the dialects, against native ones."""
    import dialects

    batch = torch.randn(16, 64), torch.arange(16) % 10

    def train(case: dialects.Case, steps: int) -> None:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            case.train(dialects.Batches([batch] * steps))

    return {
        f"a step: {name}": {
            other: partial(train, dialects.CASES[other]),
            name: partial(train, case),
        }
        for name, case in dialects.CASES.items()
        for other in case.against
    }


def groups() -> dict[str, dict[str, Work]]:
    """Return all groups of cases."""
    return trainings() | loadings() | evaluations() | in_dialects()

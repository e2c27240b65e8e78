"""A folder for a config and its modules. Nothing of it stays in the process afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from hookline.plan.registry import DATASETS, HOOKS, METRICS, MODELS, SCHEDULERS, STEPS, WRITERS

Write = Callable[[str, str], Path]

MYNET = '''
import os
from collections.abc import Callable
from os import system
from typing import Literal

import torch
from torch import nn
from torch.optim import SGD

from hookline.runner.hook import Hook
from hookline.plan.registry import HOOKS


class Net(nn.Module):
    """A small net.

    Args:
        hidden: How wide it is.
    """

    def __init__(self, hidden: int = 8, scale: tuple[float, float] = (1.0, 1.0)):
        super().__init__()
        if hidden < 1:
            raise ValueError("hidden must be positive")
        self.inner = nn.Linear(4, hidden)
        self.outer = nn.Linear(hidden, 3)
        self.scale = scale

    def forward(self, x):
        return self.outer(self.inner(x).relu())

    class Inner(nn.Module):
        pass


class Data(torch.utils.data.Dataset):
    def __init__(self, n: int = 32):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return torch.full((4,), float(index)), index % 3


def size(batch):
    return len(batch[0])


def loss_of(model, batch):
    inputs, target = batch
    return nn.functional.cross_entropy(model(inputs), target)


def predict(model, batch):
    inputs, target = batch
    return model(inputs), target


def error_rate(guess, truth, factor=1.0):
    return factor * (guess.argmax(1) != truth).float().mean()


def stack(samples):
    return torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples])


def endless(batch_size: int = 2):
    while True:
        yield torch.zeros(batch_size, 4), torch.zeros(batch_size, dtype=torch.long)


@HOOKS.register()
class ToyHook(Hook):
    """Watches.

    Args:
        momentum: How fast it
            forgets.
        mode: What to watch.
    """

    role = "observer"

    def __init__(self, momentum: float, mode: str | int | None = None, paths: tuple[str, ...] = ()):
        self.momentum = momentum


@HOOKS.register()
class ActorHook(Hook):
    """Acts."""


@HOOKS.register()
class CallingHook(Hook):
    """Takes a function and a class."""

    def __init__(self, function: Callable, kind: Literal["fast"] | type | None = None):
        self.function, self.kind = function, kind


@HOOKS.register()
class NestingHook(Hook):
    """Takes objects."""

    def __init__(self, net: nn.Module, calls: list[Callable] | None = None, anything=None):
        self.net, self.calls, self.anything = net, calls, anything
'''


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write files into a fresh working directory. Modules and names from there are removed afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for registry in (HOOKS, WRITERS, MODELS, DATASETS, METRICS, SCHEDULERS, STEPS):
        monkeypatch.setattr(registry, "_registered", dict(registry._registered))

    def put(name: str, text: str) -> Path:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return path

    before = set(sys.modules)
    yield put
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def mynet(write: Write) -> Write:
    """The same, with a module `mynet` in the working directory."""
    write("mynet.py", MYNET)
    return write

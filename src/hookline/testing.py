"""Helpers to test your own hooks and steps: a runner on toy data in one line, a recorder of points, a memory writer.

recorder = Recorder()
toy_runner(max_epochs=1, custom_hooks=[MyHook(), recorder]).train()
assert recorder.names[:2] == ["enter run", "before_run"]
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from hookline.engine.loop_specs import EvalLoop, TrainLoop
from hookline.engine.metrics import accuracy
from hookline.engine.steps import cross_entropy, predict
from hookline.optim.optim import Optim
from hookline.plan.points import POINTS, SCOPES
from hookline.runner.hook import Hook
from hookline.runner.runner import Runner
from hookline.writers.memory import MemoryWriter

__all__ = ["Event", "MemoryWriter", "Recorder", "toy_data", "toy_model", "toy_runner"]


class Event(NamedTuple):
    """A point that was called, or a scope that was entered or left, and the counters at that moment."""

    name: str
    epoch: int
    iter: int


class Recorder(Hook):
    """Records the exact sequence of points and scopes.

    Args:
        only: The points and scopes (`train_iter`) to record. Without names, all of them are recorded.
    """

    role = "observer"

    def __init__(self, *only: str) -> None:
        self.only = only
        self.events: list[Event] = []
        #: The arguments of each event, in the order of `events`.
        self.arguments: list[dict[str, Any]] = []

    @property
    def names(self) -> list[str]:
        """Return the names of the events, in order: `enter train_iter`, `before_train_iter`, ..."""
        return [event.name for event in self.events]

    def record(self, host: Any, name: str, arguments: dict[str, Any]) -> None:
        """Record one event."""
        if not self.only or name.split()[-1] in self.only:
            self.events.append(Event(name, getattr(host, "epoch", 0), getattr(host, "iter", 0)))
            self.arguments.append(arguments)


def _at_point(name: str) -> Callable[..., None]:
    def method(self: Recorder, host: Any, **arguments: Any) -> None:
        self.record(host, name, arguments)

    return method


def _around(scope: str) -> Callable[..., Iterator[None]]:
    def method(self: Recorder, host: Any, **arguments: Any) -> Iterator[None]:
        self.record(host, f"enter {scope}", arguments)
        try:
            yield
        except BaseException:
            self.record(host, f"fail {scope}", arguments)
            raise
        self.record(host, f"leave {scope}", arguments)

    return method


for _name in POINTS:
    setattr(Recorder, _name, _at_point(_name))
for _name in SCOPES:
    setattr(Recorder, _name, _around(_name.removeprefix("around_")))


def toy_data(batches: int = 4, batch_size: int = 8, seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches of four features and two classes. They are the same every time."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(batches, batch_size, 4, generator=generator)
    return [(part, (part.sum(dim=1) > 0).long()) for part in inputs]


def toy_model(seed: int = 0) -> nn.Sequential:
    """Return a net for the toy data. Its weights are the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def toy_runner(
    *,
    max_epochs: int | None = None,
    max_iters: int | None = None,
    batches: int = 4,
    val_batches: int = 2,
    step: Callable[..., Any] = cross_entropy,
    accumulate: int = 1,
    train: dict[str, Any] | None = None,
    **parts: Any,
) -> Runner:
    """Return a quiet runner on toy data. Its temporary folder is removed together with the runner.

    `train` has more parameters of the TrainLoop. Any parameter of the Runner can be passed to replace the toy's. With
    `val=None`, there is no test either, unless one is passed: a model of yours may not fit the toy data.
    """
    model = parts.pop("model", None) or toy_model()
    if max_epochs is None and max_iters is None:
        max_epochs = 2
    folder = parts.setdefault("work_dir", None) or tempfile.mkdtemp(prefix="hookline-toy-")
    own = parts.pop("work_dir") is None
    given: dict[str, Any] = {
        "train": TrainLoop(toy_data(batches), step, max_epochs=max_epochs, max_iters=max_iters, **(train or {})),
        "val": EvalLoop(toy_data(val_batches, seed=1), predict, metrics={"accuracy": accuracy}),
        "test": EvalLoop(toy_data(val_batches, seed=2), predict, metrics={"accuracy": accuracy}),
        "optim": Optim(torch.optim.SGD(model.parameters(), lr=0.1), accumulate=accumulate),
        "device": "cpu",
        "quiet": True,
        "work_dir": folder,
        **({"test": None} if parts.get("val", ...) is None else {}),
        **parts,
    }
    runner = Runner(model, **given)
    if own:
        weakref.finalize(runner, shutil.rmtree, folder, ignore_errors=True)
    return runner

"""The trainings whose Python work per step is limited: a loop by hand, the engine with more and more on, the dialects.

Clocks stand still, because files and ledger do some of their work by time. This work is not part of a step.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from hookline import Hook, Optim, Runner, TrainLoop, session
from hookline.hooks import ProgressHook
from tests.performance.counting import Counted

sys.path.append(str(Path(__file__).parent.parent.parent / "benchmarks"))

import dialects  # beside the other benchmarks
from overhead import NO_DEFAULT_HOOKS, loss_of, make_model
from recording import Screen

NO_HOOKS = {key: None for key in NO_DEFAULT_HOOKS if key != "param_scheduler"}


def parts() -> tuple[Any, Any, Any]:
    """Return a model, an optimizer and a scheduler that steps in every iteration."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)


def bare(data: Any) -> None:
    """Train with a loop written by hand."""
    model, optimizer, scheduler = parts()
    for batch in data:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
        optimizer.step()
        scheduler.step()


def engine(**options: Any) -> Callable[[Any], None]:
    """Return a training with hookline."""

    def train(data: Any) -> None:
        model, optimizer, scheduler = parts()
        Runner(
            model,
            train=TrainLoop(data, loss_of, max_epochs=1),
            optim=Optim(optimizer, schedulers=[(scheduler, "iter")]),
            work_dir="run",
            device="cpu",
            quiet=True,
            **options,
        ).train()

    return train


def own_loop(**options: Any) -> Callable[[Any], None]:
    """Return a training with a loop written by hand in a session."""

    def train(data: Any) -> None:
        model, optimizer, scheduler = parts()
        schedulers = [(scheduler, "iter")]
        own = {"work_dir": "run", "device": "cpu", "quiet": True, **options}
        with session(model, optimizer, data, max_epochs=1, schedulers=schedulers, **own) as run:
            for batch in run:
                run.step(loss_of(model, batch))

    return train


def with_writers_and_a_screen(*hooks: type[Hook]) -> Callable[[Any], None]:
    """Return a training with two writers, a screen, and further hooks."""

    def train(data: Any) -> None:
        engine(writers=["jsonl", "tensorboard"], custom_hooks=[Screen(), *(hook() for hook in hooks)])(data)

    return train


CASES: dict[str, Callable[[Any], None]] = {
    "bare loop": bare,
    "no hooks": engine(default_hooks=NO_HOOKS),
    "default hooks": engine(),
    "session, no hooks": own_loop(default_hooks=NO_HOOKS),
    "session, default hooks": own_loop(),
    "everything": with_writers_and_a_screen(ProgressHook),  # logging, a progress bar and checkpoints
    **{name: case.train for name, case in dialects.CASES.items() if not name.startswith(("hookline", "by hand"))},
}


@contextmanager
def clocks_stopped() -> Iterator[None]:
    """Stop all clocks that hookline reads."""
    stopped = partial(float, 1e3)  # without an instruction of its own
    with mock.patch.object(time, "perf_counter", stopped), mock.patch.object(time, "monotonic", stopped):
        yield


def counted_case(name: str) -> Counted:
    """Train a case, and return what was counted."""
    return counted(CASES[name])


def counted(train: Callable[[Any], None]) -> Counted:
    """Train, and return what was counted."""
    generator = torch.Generator().manual_seed(0)
    data = Counted((torch.randn(16, 64, generator=generator), torch.randint(10, (16,), generator=generator)))
    with tempfile.TemporaryDirectory() as folder, chdir(folder), redirect_stdout(io.StringIO()), clocks_stopped():
        train(data)
    return data

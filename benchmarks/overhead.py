"""Measure the overhead of the engine: microseconds per step of a bare loop and of hookline.

The cases take turns in one process, and the minimum of several rounds counts.

python benchmarks/overhead.py            a table
python benchmarks/overhead.py --json     the same as JSON
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hookline import Hook, Optim, Runner, TrainLoop, session

NO_DEFAULT_HOOKS = dict.fromkeys(("runtime_info", "timer", "sampler_seed", "logger", "param_scheduler", "checkpoint"))

Data = list[tuple[torch.Tensor, torch.Tensor]]


class EpochHook(Hook):
    """A hook that does not touch iteration points."""

    def before_train(self, runner: Runner) -> None:
        """Do nothing."""

    def after_train_epoch(self, runner: Runner) -> None:
        """Do nothing."""

    def after_val_epoch(self, runner: Runner) -> None:
        """Do nothing."""


def make_model() -> nn.Module:
    """Return a small net, so that the benchmark measures the engine and not the arithmetic."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Compute the loss; the step is the same in all cases."""
    inputs, target = batch
    return nn.functional.cross_entropy(model(inputs), target)


def bare(data: Data) -> float:
    """Train with a loop written by hand."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    gc.collect()
    began = time.perf_counter()
    for batch in data:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
        optimizer.step()
    return (time.perf_counter() - began) / len(data)


class Clock(Hook):
    """Times only the epoch, because the bare loop does not open files either."""

    priority = "HIGHEST"
    seconds = 0.0

    def around_train_epoch(self) -> Any:
        """Measure from before the first batch until after the last."""
        gc.collect()  # objects created before the run are not a cost of its steps
        began = time.perf_counter()
        yield
        self.seconds = time.perf_counter() - began


def with_hookline(data: Data, own_loop: bool = False, **parts: Any) -> float:
    """Train in the same way with hookline: in its own loop, or in a loop written by hand in a session."""
    model = make_model()
    clock = Clock()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tempfile.TemporaryDirectory() as folder:
        parts |= {"work_dir": folder, "device": "cpu", "quiet": True}
        hooks = [clock, *parts.pop("custom_hooks", [])]
        if own_loop:
            with session(model, optimizer, data, max_epochs=1, hooks=hooks, **parts) as run:
                for batch in run:
                    run.step(loss_of(model, batch))
        else:
            train = TrainLoop(data, loss_of, max_epochs=1)
            Runner(model, train=train, optim=Optim(optimizer), custom_hooks=hooks, **parts).train()
    return clock.seconds / len(data)


def cases() -> dict[str, Callable[[Data], float]]:
    """Return the cases to compare, by name."""
    return {
        "bare loop": bare,
        "hookline, no hooks": lambda data: with_hookline(data, default_hooks=NO_DEFAULT_HOOKS),
        "session, no hooks": lambda data: with_hookline(data, own_loop=True, default_hooks=NO_DEFAULT_HOOKS),
        "hookline, 100 epoch hooks": lambda data: with_hookline(
            data, default_hooks=NO_DEFAULT_HOOKS, custom_hooks=[EpochHook() for _ in range(100)]
        ),
        "hookline, six default hooks": with_hookline,
        "session, six default hooks": lambda data: with_hookline(data, own_loop=True),
    }


def measure(cases: dict[str, Callable[[Data], float]], steps: int, rounds: int) -> dict[str, float]:
    """Return the microseconds per step of each case, the minimum of all rounds. The cases take turns, to be fair."""
    generator = torch.Generator().manual_seed(0)
    batches = [
        (torch.randn(16, 64, generator=generator), torch.randint(10, (16,), generator=generator)) for _ in range(50)
    ]
    data = [batches[i % 50] for i in range(steps)]
    least = dict.fromkeys(cases, float("inf"))
    for _ in range(rounds):
        for name, run in cases.items():
            least[name] = min(least[name], run(data))
    return {name: seconds * 1e6 for name, seconds in least.items()}


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000, help="steps per measurement")
    parser.add_argument("--rounds", type=int, default=16, help="measurements per case")
    parser.add_argument("--threads", type=int, default=1, help="torch threads; one is more stable for such a small net")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    measure(cases(), steps=200, rounds=1)  # warm up
    found = measure(cases(), options.steps, options.rounds)
    base = found["bare loop"]
    if options.json:
        print(json.dumps({name: {"microseconds": us, "ratio": us / base} for name, us in found.items()}, indent=2))
        return
    print(f"{'':30}{'us/step':>10}{'ratio':>8}")
    for name, microseconds in found.items():
        print(f"{name:30}{microseconds:10.1f}{microseconds / base:8.3f}")


if __name__ == "__main__":
    main()

"""Measure a training from a config against the loop that a user would write: `torch.optim.AdamW(parameters, lr)`.

python benchmarks/from_config.py             a table: seconds per step, as a ratio to that loop
python benchmarks/from_config.py --write     also write it into docs/performance.md

From a config, an optimizer has the fastest implementation that torch offers for the device. So the training can take
less time than the loop, although the engine is there. The cases take turns in one process, in another order in every
round. The minimum of all rounds counts. Every case ends with the same weights, up to 1e-5, or it is refused.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import tempfile
from collections.abc import Callable
from contextlib import chdir
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import torch

import pages
from hookline import Runner
from overhead import NO_DEFAULT_HOOKS
from terminals import on_a_terminal

TOLERANCE = 1e-5
WARM_UP = 100
#: The steps of a run. Records are every 10 steps.
STEPS = 1500

NET = """\
import time

import torch
from torch import nn

marks = []
count = 0


class Net(nn.Sequential):
    def __init__(self):
        torch.manual_seed(0)
        super().__init__(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


class Batches(list):
    def __init__(self, steps):
        generator = torch.Generator().manual_seed(0)
        several = [(torch.randn(16, 64, generator=generator), torch.randint(10, (16,), generator=generator))
                   for _ in range(50)]
        super().__init__(several[i % 50] for i in range(steps))


def loss_of(model, batch):
    global count
    if count in ends:
        marks.append((time.perf_counter(), time.process_time()))
    count += 1
    inputs, target = batch
    return nn.functional.cross_entropy(model(inputs), target)
"""

CONFIG = """\
model: {{type: "plain_net:Net"}}
train:
  dataloader: {{type: "plain_net:Batches", steps: {steps}}}
  step: "plain_net:loss_of"
  max_epochs: 1
optim: {{optimizer: {{type: AdamW, lr: 1.0e-3}}, schedulers: [{{type: ExponentialLR, gamma: 0.9999, when: iter}}]}}
device: cpu
work_dir: {work_dir}
"""
ALONE = (
    "default_hooks: {"
    + ", ".join(f"{name}: null" for name in NO_DEFAULT_HOOKS if name != "param_scheduler")
    + "}\nwriters: []\n"
)
EVERYTHING = "custom_hooks: [{type: ProgressHook}]\nwriters: [jsonl, tensorboard]\n"

BY_HAND = "a loop written by hand"


class Times(NamedTuple):
    """The seconds per step, by the wall clock and in CPU time."""

    wall: float
    cpu: float


def by_hand(net: Any, steps: int) -> torch.nn.Module:
    """Train as a user would write it."""
    model, data = net.Net(), net.Batches(steps)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9999)
    model.train()
    for batch in data:
        optimizer.zero_grad()
        loss = net.loss_of(model, batch)
        loss.backward()
        optimizer.step()
        scheduler.step()
    return model  # type: ignore[no-any-return]  # the class is in a module that this file writes


def from_config(text: str) -> Callable[[Any, int], torch.nn.Module]:
    """Return a training from a config."""

    def train(net: Any, steps: int) -> torch.nn.Module:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            path = Path(folder) / "config.yaml"
            path.write_text(CONFIG.format(steps=steps, work_dir=f"{folder}/run") + text)
            runner = Runner.from_config(path)
            runner.train()
        return runner.model

    return train


CASES: dict[str, Callable[[Any, int], torch.nn.Module]] = {
    BY_HAND: by_hand,
    "from a config, nothing but the loop": from_config(ALONE),
    "from a config, with logging, a progress bar and checkpoints": from_config(EVERYTHING),
}


def run_once(net: Any, name: str, steps: int) -> tuple[Times, list[torch.Tensor]]:
    """Train once. Return the time of the steps after the warm-up, and the weights."""
    net.marks, net.count, net.ends = [], 0, (WARM_UP, WARM_UP + steps)
    gc.collect()
    model = CASES[name](net, WARM_UP + steps + 1)
    (wall, cpu), (last, last_cpu) = net.marks
    return Times((last - wall) / steps, (last_cpu - cpu) / steps), list(model.state_dict().values())


def check(name: str, found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """Refuse other weights than those of the loop."""
    far = max((one - other).abs().max().item() for one, other in zip(found, expected, strict=True))
    if not far <= TOLERANCE:  # also if it is NaN
        raise RuntimeError(f"{name}: the weights differ from those of the loop by up to {far:.2g}")


def measure(steps: int, rounds: int) -> dict[str, Times]:
    """Return the minimum of all rounds for each case."""
    found: dict[str, list[Times]] = {name: [] for name in CASES}
    order = random.Random(0)
    expected: list[torch.Tensor] = []
    with tempfile.TemporaryDirectory() as folder, chdir(folder), on_a_terminal():
        (Path(folder) / "plain_net.py").write_text(NET)
        sys.path.insert(0, folder)
        import plain_net  # type: ignore[import-not-found]  # written just now

        for number in range(rounds + 1):
            names = list(CASES)
            if number:
                order.shuffle(names)
            for name in names:
                times, weights = run_once(plain_net, name, steps)
                expected = expected or weights  # the loop is the first one
                check(name, weights, expected)
                if number:  # the first round warms up
                    found[name].append(times)
        sys.path.remove(folder)
    return {name: Times(*map(min, zip(*several, strict=True))) for name, several in found.items()}


def main() -> None:
    """Measure, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS, help="measured steps per run")
    parser.add_argument("--rounds", type=int, default=12, help="measurements per case")
    parser.add_argument("--write", action="store_true", help="write the figures into docs/performance.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(options.steps, options.rounds)
    base = found[BY_HAND]
    rows = [
        [name, f"{times.wall * 1e6:.0f}", f"{times.wall / base.wall:.2f}", f"{times.cpu / base.cpu:.2f}"]
        for name, times in found.items()
    ]
    table = pages.table(["", "microseconds per step", "ratio", "ratio in CPU time"], rows)
    print(table)
    if options.write:
        when = (
            f"Measured on {date.today().isoformat()} with `python benchmarks/from_config.py`, torch {torch.__version__}"
        )
        pages.write("docs/performance.md", "config", f"{when}, one thread:\n\n{table}")


if __name__ == "__main__":
    main()

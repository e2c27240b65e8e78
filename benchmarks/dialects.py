"""Measure the cost of a dialect: microseconds per step of the same training, in native code and in four dialects.

python benchmarks/dialects.py            a table
python benchmarks/dialects.py --json     the same as JSON
python benchmarks/dialects.py --write    also write it into docs/performance.md

Each case is compared with a native run that does the same work. RoboOrchard trains on accelerate, so it is also
compared with a loop written by hand with accelerate. The cases take turns in one process. The result is the minimum
over many pieces of 50 steps, in CPU time, so that other programs on the machine have little influence.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import chdir
from datetime import date
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import nn

import pages
from hookline import Optim, Runner, TrainLoop
from hookline.dialects.imix.engine.imix_engine import imixEngine
from hookline.dialects.mmengine.model import BaseModel
from hookline.dialects.mmengine.runner import Runner as MMEngineRunner
from hookline.dialects.pointrix.engine import DefaultTrainer
from hookline.dialects.pointrix.logger import Logger
from hookline.dialects.pointrix.optimizer import BaseOptimizer
from hookline.dialects.robo_orchard_lab.pipeline import HookBasedTrainer
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor import SimpleBatchProcessor
from overhead import NO_DEFAULT_HOOKS, loss_of, make_model

RATE = 0.01
#: The number of steps that are measured together.
PIECE = 50
#: Only the default hooks for what every iMIX run does: record numbers and time iterations.
RECORDING = {key: None for key in NO_DEFAULT_HOOKS if key not in ("runtime_info", "timer", "param_scheduler")}


class Batches(list[Any]):
    """The data of an epoch. It records the CPU time every `PIECE` batches, to measure the steps in between."""

    def __iter__(self) -> Iterator[Any]:
        for number in range(len(self)):
            yield self.take(number)

    def take(self, number: int) -> Any:
        """Return one batch."""
        if number == 0:
            gc.collect()  # objects created before the first step are not a cost of the steps
            self.noted: list[float] = []
        if number % PIECE == 0:
            self.noted.append(time.process_time())
        return self[number]

    @property
    def seconds(self) -> float:
        """Return the seconds per step in the fastest piece."""
        return min(later - earlier for earlier, later in pairwise(self.noted)) / PIECE


class Net(nn.Module):
    """A small net, so that the benchmark measures the engine and not the arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(make_model().children())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the scores."""
        return scores_of(self, inputs)


def scores_of(net: Any, inputs: torch.Tensor) -> torch.Tensor:
    """Apply the layers of a net, one after the other."""
    for layer in net.layers:
        inputs = layer(inputs)
    return inputs


def natively(data: Batches, default_hooks: dict[str, Any] | None, keep_gradients: bool = False) -> None:
    """Train with a native Runner."""
    model = Net()
    Runner(
        model,
        train=TrainLoop(data, loss_of, max_epochs=1),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=RATE), keep_gradients=keep_gradients),
        default_hooks=default_hooks,
        work_dir="run",
        device="cpu",
        quiet=True,
    ).train()


class MMEngineNet(BaseModel):
    """The net, with its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = Net().layers

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor, mode: str = "tensor") -> Any:  # type: ignore[override]
        """Return the loss in training, otherwise the scores."""
        scores = scores_of(self, inputs)
        return {"loss": nn.functional.cross_entropy(scores, labels)} if mode == "loss" else scores


def as_mmengine(data: Batches, default_hooks: dict[str, Any] | None) -> None:
    """Train with MMEngine's Runner."""
    MMEngineRunner(
        model=MMEngineNet(),
        work_dir="run",
        train_dataloader=data,
        train_cfg={"by_epoch": True, "max_epochs": 1},
        optim_wrapper={"optimizer": {"type": "SGD", "lr": RATE}},
        default_hooks=default_hooks,
        randomness={"seed": 0},
        log_level="WARNING",
    ).train()


def as_imix(data: Batches) -> None:
    """Train with iMIX's engine."""
    model = Net()
    cfg = {"total_epochs": 1, "work_dir": "run", "model_device": "cpu", "quiet": True}
    imixEngine(
        {**cfg, "log_config": None, "checkpoint_config": None},
        model=model,
        data_loader=data,
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
        loss_fn=loss_of,
    ).train()


class PointrixNet(Net):
    """The net, with the methods that a trainer calls."""

    def forward(self, batch: Any) -> torch.Tensor:
        """Return the scores."""
        return scores_of(self, batch[0])

    def get_loss_dict(self, scores: torch.Tensor, batch: Any) -> dict[str, torch.Tensor]:
        """Return the loss."""
        return {"loss": nn.functional.cross_entropy(scores, batch[1])}


class PointrixData:
    """Batches by step."""

    def __init__(self, data: Batches) -> None:
        self.data = data

    def next_train(self, step: int) -> Any:
        """Return the batch of a step."""
        return self.data.take(step - 1)


def as_pointrix(data: Batches) -> None:
    """Train with Pointrix's trainer."""
    Logger.terminal.quiet = True
    trainer = DefaultTrainer({"max_steps": len(data), "val_interval": 0, "seed": 0}, "run", "cpu")
    trainer.datapipeline, trainer.model = PointrixData(data), PointrixNet()
    trainer.optimizer = BaseOptimizer(None, torch.optim.SGD(trainer.model.parameters(), lr=RATE))
    trainer.train_loop()


def with_accelerate(data: Batches) -> None:
    """Train with a loop written by hand with accelerate."""
    from accelerate import Accelerator  # type: ignore[import-untyped]

    model = Net()
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=RATE))
    for batch in data:
        optimizer.zero_grad()
        accelerator.backward(loss_of(model, batch))
        optimizer.step()


def as_robo_orchard(data: Batches) -> None:
    """Train with RoboOrchard's trainer."""
    from accelerate import Accelerator

    model = Net()
    HookBasedTrainer(
        model=model,
        dataloader=data,
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
        accelerator=Accelerator(cpu=True),
        batch_processor=SimpleBatchProcessor.from_callable(lambda model, batch: (None, loss_of(model, batch))),
        max_epoch=1,
    )()


class Case(NamedTuple):
    """A training function, and the names of the cases to compare it with."""

    train: Callable[[Batches], None]
    against: tuple[str, ...] = ()


NO_HOOKS, RECORDED, KEPT = "hookline, no hooks", "hookline, recording", "hookline, recording, gradients kept"
DEFAULT = "hookline, default hooks"
ACCELERATE = "by hand, accelerate"
CASES = {
    NO_HOOKS: Case(lambda data: natively(data, NO_DEFAULT_HOOKS)),
    "mmengine, no hooks": Case(lambda data: as_mmengine(data, NO_DEFAULT_HOOKS), (NO_HOOKS,)),
    "pointrix, no hooks": Case(as_pointrix, (NO_HOOKS,)),
    RECORDED: Case(lambda data: natively(data, RECORDING)),
    # iMIX keeps gradients for hooks until the next update. In such a small step, the memory that they use shows.
    KEPT: Case(lambda data: natively(data, RECORDING, keep_gradients=True), (RECORDED,)),
    "imix, minimal hooks": Case(as_imix, (KEPT,)),
    DEFAULT: Case(lambda data: natively(data, None)),
    "mmengine, default hooks": Case(lambda data: as_mmengine(data, None), (DEFAULT,)),
    ACCELERATE: Case(with_accelerate),
    "robo_orchard, minimal hooks": Case(as_robo_orchard, (NO_HOOKS, ACCELERATE)),
}


def measure(steps: int, rounds: int) -> dict[str, float]:
    """Return the microseconds per step of each case, the minimum of all rounds. The cases take turns, to be fair."""
    generator = torch.Generator().manual_seed(0)
    batches = [
        (torch.randn(16, 64, generator=generator), torch.randint(10, (16,), generator=generator)) for _ in range(50)
    ]
    least = dict.fromkeys(CASES, float("inf"))
    for _ in range(rounds):
        for name, case in CASES.items():
            data = Batches(batches[i % 50] for i in range(steps))
            with tempfile.TemporaryDirectory() as folder, chdir(folder):
                case.train(data)
            least[name] = min(least[name], data.seconds)
    return {name: seconds * 1e6 for name, seconds in least.items()}


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=401, help=f"steps per measurement, more than {PIECE}")
    parser.add_argument("--rounds", type=int, default=40, help="measurements per case")
    parser.add_argument("--threads", type=int, default=1, help="torch threads; one is more stable for such a small net")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", action="store_true", help="write the figures into docs/performance.md")
    options = parser.parse_args()
    if options.steps <= PIECE:
        parser.error(f"--steps must be more than {PIECE}, because {PIECE} steps are measured together")
    torch.set_num_threads(options.threads)
    measure(steps=min(options.steps, 201), rounds=1)  # warm up
    found = measure(options.steps, options.rounds)
    ratios = {name: {other: found[name] / found[other] for other in CASES[name].against} for name in found}
    if options.json:
        print(json.dumps({name: {"microseconds": found[name], "of": ratios[name]} for name in found}, indent=2))
        return
    print(f"{'':38}{'us/step':>10}{'ratio':>8}")
    for name, microseconds in found.items():
        compared = [f"{ratio:8.3f}  of {other}" for other, ratio in ratios[name].items()]
        print(f"{name:38}{microseconds:10.1f}" + f"\n{'':48}".join(compared))
    if options.write:
        pages.write("docs/performance.md", "dialects", as_page(found, ratios))


def as_page(found: dict[str, float], ratios: dict[str, dict[str, float]]) -> str:
    """Return the table of docs/performance.md."""
    rows = [
        [name, f"{found[name]:.0f}", f"{ratio:.2f}", f"{other} ({found[other]:.0f})"]
        for name, others in ratios.items()
        for other, ratio in others.items()
    ]
    when = f"Measured on {date.today().isoformat()} with `python benchmarks/dialects.py`, torch {torch.__version__}:"
    return f"{when}\n\n{pages.table(['', 'microseconds per step', 'ratio', 'to'], rows)}"


if __name__ == "__main__":
    main()

"""Measure hookline with DDP against a DDP loop written by hand, in two processes on this machine.

The cases take turns in the same processes. A figure is the time of the fastest 100 steps in a row, by the wall clock
and in CPU time of all threads of the process: with as many processes as cores, longer times say more about the machine.
The last line is the cost of agreement: the time that the main thread spends in it per step, the least of all rounds.

python benchmarks/distributed.py            two tables
python benchmarks/distributed.py --json     the same as JSON
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from hookline import Hook, Optim, Runner, TrainLoop, every
from hookline.strategies.ddp import DDP

Data = list[tuple[torch.Tensor, torch.Tensor]]
PIECE = 100


class Figures(NamedTuple):
    """The seconds per step of one measurement: by the wall clock, in CPU time, and in agreement."""

    wall: float
    cpu: float
    agreement: float = 0.0


class Timed(DDP):
    """DDP that measures how long agreement takes, after its interval was chosen."""

    seconds = 0.0
    calls = 0

    def agree(self, requests: Any, now: bool = False) -> None:
        """Measure one call."""
        began = time.perf_counter()
        super().agree(requests, now)
        self.calls += 1
        if self.calls > 20:
            self.seconds += time.perf_counter() - began


class Times:
    """The times of pieces of PIECE steps, by the wall clock and in CPU time. The first piece warms up."""

    def __init__(self) -> None:
        gc.collect()  # objects created before are not a cost of the steps
        distributed.barrier()
        self._marks: list[tuple[float, float]] = []

    def mark(self) -> None:
        """Note the end of a piece."""
        self._marks.append((time.perf_counter(), time.process_time()))

    def fastest(self) -> tuple[float, float]:
        """Return the least seconds per step of a piece."""
        pieces = [(end[0] - begin[0], end[1] - begin[1]) for begin, end in pairwise(self._marks)]
        return min(wall for wall, _ in pieces) / PIECE, min(cpu for _, cpu in pieces) / PIECE


class Clock(Hook):
    """Measures the steps of a run."""

    def around_train_epoch(self) -> Any:
        """Begin together with the other process."""
        self.times = Times()
        yield

    @every(PIECE)
    def after_train_iter(self) -> None:
        """Note the end of a piece."""
        self.times.mark()


def make_model(width: int) -> nn.Module:
    """Return a net whose step takes some milliseconds."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Compute the loss; the step is the same in all cases."""
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def bare(data: Data, width: int) -> Figures:
    """Train with a loop written by hand."""
    model = DistributedDataParallel(make_model(width))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    own = data[distributed.get_rank() :: distributed.get_world_size()]
    times = Times()
    for number, batch in enumerate(own, start=1):
        optimizer.zero_grad()
        loss_of(model, batch).backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
        optimizer.step()
        if number % PIECE == 0:
            times.mark()
    return Figures(*times.fastest())


def with_hookline(data: Data, width: int) -> Figures:
    """Train in the same way with hookline and its default hooks."""
    model, clock, strategy = make_model(width), Clock(), Timed()
    with tempfile.TemporaryDirectory() as folder:
        Runner(
            model,
            train=TrainLoop(data, loss_of, max_epochs=1),
            optim=Optim(torch.optim.SGD(model.parameters(), lr=0.01)),
            custom_hooks=[clock],
            work_dir=folder,
            strategy=strategy,
            device="cpu",
            quiet=True,
        ).train()
    steps = len(data) // distributed.get_world_size()
    return Figures(*clock.times.fastest(), strategy.seconds / (steps - 20))


CASES: dict[str, Callable[[Data, int], Figures]] = {
    "bare DDP loop": bare,
    "hookline, default hooks": with_hookline,
}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Let the cases take turns, and return the figures of this process."""
    generator = torch.Generator().manual_seed(0)
    batch = (
        torch.randn(options.batch, 64, generator=generator),
        torch.randint(10, (options.batch,), generator=generator),
    )
    data = [batch] * (options.steps * distributed.get_world_size())
    rounds = [[run(data, options.width) for run in CASES.values()] for _ in range(options.rounds)]
    bare_ones, own_ones = zip(*rounds, strict=True)
    base, own = (Figures(*map(min, zip(*each, strict=True))) for each in (bare_ones, own_ones))
    return {
        "bare_ms": base.wall * 1e3,
        "hookline_ms": own.wall * 1e3,
        "ratio": own.wall / base.wall,
        "ratio_cpu": own.cpu / base.cpu,
        "agreement_us": own.agreement * 1e6,
        "agreement_share": own.agreement / own.wall,
        "agreement_share_of_2_ms": own.agreement / 2e-3,
    }


def worker(options: argparse.Namespace) -> None:
    """Measure in this process, and print the result of the main one."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    found = measure(options)
    if distributed.get_rank() == 0:
        show(found, options.json)
    distributed.barrier()
    distributed.destroy_process_group()


def show(found: dict[str, Any], as_json: bool) -> None:
    """Print the figures."""
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'':30}{'ms/step':>10}{'ratio':>8}{'CPU':>8}")
    print(f"{'bare DDP loop':30}{found['bare_ms']:10.3f}{1:8.3f}{1:8.3f}")
    print(f"{'hookline, default hooks':30}{found['hookline_ms']:10.3f}{found['ratio']:8.3f}{found['ratio_cpu']:8.3f}")
    share, of_two = found["agreement_share"], found["agreement_share_of_2_ms"]
    print(f"agreement: {found['agreement_us']:.1f} us per step, {share:.2%} of this step, {of_two:.2%} of one of 2 ms")


def main() -> None:
    """Start the processes, or measure in one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500, help="steps per measurement")
    parser.add_argument("--rounds", type=int, default=15, help="measurements per case")
    parser.add_argument("--width", type=int, default=256, help="the width of the net")
    parser.add_argument("--batch", type=int, default=64, help="samples per process and step")
    parser.add_argument("--nproc", type=int, default=2, help="the number of processes")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if "RANK" in os.environ:
        worker(options)
        return
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={options.nproc}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    sys.exit(subprocess.run([*launcher, __file__, *sys.argv[1:]], env=environment, check=False).returncode)


if __name__ == "__main__":
    main()

"""Measure hookline with DDP against a DDP loop written by hand, in two processes on this machine.

The cases take turns in the same processes, and the minimum of several rounds counts. The second table is the cost of
agreement: the time that the main thread spends in it per step.

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
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from hookline import Hook, Optim, Runner, TrainLoop
from hookline.strategies.ddp import DDP

Data = list[tuple[torch.Tensor, torch.Tensor]]


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


class Clock(Hook):
    """Times only the epoch, because the bare loop does not open files either."""

    priority = "HIGHEST"
    seconds = 0.0

    def around_train_epoch(self) -> Any:
        """Measure from before the first batch until after the last."""
        gc.collect()  # objects created before the run are not a cost of its steps
        distributed.barrier()
        began = time.perf_counter()
        yield
        self.seconds = time.perf_counter() - began


def make_model(width: int) -> nn.Module:
    """Return a net whose step takes some milliseconds."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Compute the loss; the step is the same in all cases."""
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def bare(data: Data, width: int) -> tuple[float, float]:
    """Train with a loop written by hand. Return the seconds per step."""
    model = DistributedDataParallel(make_model(width))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    own = data[distributed.get_rank() :: distributed.get_world_size()]
    gc.collect()
    distributed.barrier()
    began = time.perf_counter()
    for batch in own:
        optimizer.zero_grad()
        loss_of(model, batch).backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
        optimizer.step()
    return (time.perf_counter() - began) / len(own), 0.0


def with_hookline(data: Data, width: int) -> tuple[float, float]:
    """Train in the same way with hookline and its default hooks. Return the seconds per step, and of agreement."""
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
    return clock.seconds / steps, strategy.seconds / (steps - 20)


CASES: dict[str, Callable[[Data, int], tuple[float, float]]] = {
    "bare DDP loop": bare,
    "hookline, default hooks": with_hookline,
}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Let the cases take turns, and return the smallest times of this process."""
    generator = torch.Generator().manual_seed(0)
    batch = (
        torch.randn(options.batch, 64, generator=generator),
        torch.randint(10, (options.batch,), generator=generator),
    )
    data = [batch] * (options.steps * distributed.get_world_size())
    least = dict.fromkeys(CASES, (float("inf"), float("inf")))
    for number in range(options.rounds + 1):
        for name, run in CASES.items():
            found = run(data, options.width)
            if number:  # the first round warms up
                least[name] = min(least[name][0], found[0]), min(least[name][1], found[1])
    base, (own, agreement) = least["bare DDP loop"][0], least["hookline, default hooks"]
    return {
        "bare_ms": base * 1e3,
        "hookline_ms": own * 1e3,
        "ratio": own / base,
        "agreement_us": agreement * 1e6,
        "agreement_share": agreement / own,
        "agreement_share_of_2_ms": agreement / 2e-3,
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
    print(f"{'':30}{'ms/step':>10}{'ratio':>8}")
    print(f"{'bare DDP loop':30}{found['bare_ms']:10.3f}{1:8.3f}")
    print(f"{'hookline, default hooks':30}{found['hookline_ms']:10.3f}{found['ratio']:8.3f}")
    share, of_two = found["agreement_share"], found["agreement_share_of_2_ms"]
    print(f"agreement: {found['agreement_us']:.1f} us per step, {share:.2%} of this step, {of_two:.2%} of one of 2 ms")


def main() -> None:
    """Start the processes, or measure in one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400, help="steps per measurement")
    parser.add_argument("--rounds", type=int, default=6, help="measurements per case")
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

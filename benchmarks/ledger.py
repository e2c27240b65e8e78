"""Estimate what the ledger costs: microseconds per step, and the share of a small step of 0.25 ms.

Differences of a microsecond cannot be timed on a busy machine, so three things are reported:

- calls: the function calls per step that the interpreter counts, with the ledger and without it. They do not depend on
  the speed of the machine.
- estimate: how often the ledger did something, times the CPU time of doing it once, measured in a loop of its own.
- CPU time per step with and without it, the minimum of several rounds that take turns.

python benchmarks/ledger.py            a table
python benchmarks/ledger.py --json     the same as JSON
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from hookline import Hook, Optim, Runner, TrainLoop
from hookline.common.pace import SPARSE
from hookline.plan.costs import PERIOD, Cost
from hookline.plan.ledger import PART_OF_SCOPE

#: The step that the limit of 0.5% refers to, in microseconds, and that limit.
SMALL_STEP, LIMIT = 250.0, 0.005


class Meter(Hook):
    """Takes the CPU time and the calls of the steps, and can turn the ledger off."""

    priority = "HIGHEST"

    def __init__(self, on: bool, counts: bool) -> None:
        self.on, self.counts = on, counts
        self.seconds, self.calls = 0.0, 0

    def around_train_epoch(self, runner: Runner) -> Any:
        """Measure the steps of the epoch, without the files at its beginning and end."""
        if not self.on:
            runner.plan.ledger.next_turn = math.inf
        if self.counts:
            sys.setprofile(self._count)
        began = time.process_time()
        yield
        self.seconds = time.process_time() - began
        sys.setprofile(None)

    def _count(self, frame: Any, event: str, argument: Any) -> None:
        self.calls += event in ("call", "c_call")


def train(steps: int, on: bool, counts: bool = False) -> tuple[Meter, Runner]:
    """Train a small net with the default hooks."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    data = [(torch.randn(16, 64), torch.randint(10, (16,))) for _ in range(50)]
    meter = Meter(on, counts)
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(
            model,
            train=TrainLoop([data[i % 50] for i in range(steps)], max_epochs=1, step=loss_of),
            optim=Optim(torch.optim.SGD(model.parameters(), lr=0.01)),
            custom_hooks=[meter],
            work_dir=folder,
            device="cpu",
            quiet=True,
        )
        runner.train()
    return meter, runner


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Compute the loss."""
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def cpu_time_of(work: Callable[[], object], times: int = 20_000) -> float:
    """Return the CPU microseconds of one call, the minimum of five loops."""
    least = math.inf
    for _ in range(5):
        began = time.process_time()
        for _ in range(times):
            work()
        least = min(least, (time.process_time() - began) / times)
    return least * 1e6


def estimate(runner: Runner, steps: int) -> dict[str, float]:
    """Return the CPU microseconds per step of everything that the ledger did in a run.

    Work that is repeated every few seconds takes at most 0.1% of the time each: the file, and the look at memory.
    """
    ledger, plan, cost = runner.plan.ledger, runner.plan, Cost()
    spans = sum(call.cost.calls for call in plan.all_calls())
    switch = cpu_time_of(lambda: plan.measure("all"), 2000) + cpu_time_of(lambda: plan.measure("rare"), 2000)
    plan.measure("all")
    scope = cpu_time_of(lambda: exit_at_once(plan.around("forward", None)))
    long_way = cpu_time_of(update_of(runner), 500)
    plan.measure("none")
    short_way = cpu_time_of(update_of(runner), 500)
    return {
        "one comparison per step": cpu_time_of(lambda: ledger.next_turn <= 5.0) - cpu_time_of(lambda: None),
        "readings of the clock": spans / steps * cpu_time_of(lambda: ledger.end(cost, 0.0, time.perf_counter())),
        "parts of a step": ledger.sampled_steps * len(PART_OF_SCOPE) / steps * scope,
        "the long way of an update": max(long_way - short_way - 2 * scope, 0.0) / PERIOD,
        "switching the plan": switch / PERIOD,
        "files and budgets": SMALL_STEP * 2 / SPARSE,
    }


def update_of(runner: Runner) -> Callable[[], None]:
    """Return an update of one number, which takes little time besides the way to it."""
    weight = nn.Parameter(torch.zeros(()))
    optim = Optim(torch.optim.SGD([weight], lr=0.1))
    optim.plan = runner.plan
    return lambda: optim.update(weight * 1.0)


def exit_at_once(context: AbstractContextManager[Any]) -> None:
    """Enter and leave a context."""
    with context:
        pass


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3100, help="steps per run")
    parser.add_argument("--rounds", type=int, default=5, help="runs per case")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    train(200, True)  # warm up
    calls = {on: train(options.steps, on, counts=True)[0].calls / options.steps for on in (False, True)}
    cpu = {False: math.inf, True: math.inf}
    for _ in range(options.rounds):
        for on in cpu:
            cpu[on] = min(cpu[on], train(options.steps, on)[0].seconds / options.steps * 1e6)
    parts = estimate(train(options.steps, True)[1], options.steps)
    total = sum(parts.values())
    found = {
        "calls_per_step": {"off": calls[False], "on": calls[True]},
        "cpu_microseconds_per_step": {"off": cpu[False], "on": cpu[True]},
        "estimated_microseconds_per_step": {**parts, "sum": total},
        "share_of_a_small_step": total / SMALL_STEP,
        "limit": LIMIT,
    }
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(f"calls per step: {calls[False]:.1f} without the ledger, {calls[True]:.1f} with it")
    print(f"CPU time per step: {cpu[False]:.1f} us without, {cpu[True]:.1f} us with (minimum of {options.rounds})")
    for name, value in {**parts, "sum": total}.items():
        print(f"  {name:26}{value:8.3f} us per step")
    print(f"  {total / SMALL_STEP:.2%} of a step of {SMALL_STEP / 1000} ms; the limit is {LIMIT:.1%}")


if __name__ == "__main__":
    main()

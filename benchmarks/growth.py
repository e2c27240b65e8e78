"""Measure how costs grow: with hooks, recorded numbers, steps, parameter groups, checkpoints in a folder, and runs.

python benchmarks/growth.py                   tables
python benchmarks/growth.py --write           also write them into docs/performance.md, with a picture
python benchmarks/growth.py --largest 100 --steps 100_000      smaller sizes, to try it

All times are CPU time, and the minimum of several rounds in which the sizes take turns. The steps are simulated: the
step of the user computes nothing, so that only the cost of the engine is left.
"""

from __future__ import annotations

import argparse
import gc
import io
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import charts
import pages
from hookline import EvalLoop, Hook, Optim, Runner, TrainLoop, every
from hookline.checkpoint.store import newest_intact
from hookline.cli import compare
from hookline.engine.metrics import accuracy
from overhead import NO_DEFAULT_HOOKS
from simulation import LOSS, Simulation, simulate

#: The only default hook of a run whose hooks are counted.
ONLY_SCHEDULER = {key: None for key in NO_DEFAULT_HOOKS if key != "param_scheduler"}
LOGGED = {key: None for key in NO_DEFAULT_HOOKS if key not in ("runtime_info", "logger")}

#: By name, the values by size.
Curves = dict[str, dict[int, float]]


class Panel(NamedTuple):
    """One kind of growth: what is counted, what was measured, and the values."""

    title: str
    counted: str
    unit: str
    curves: Curves

    def as_table(self) -> str:
        """Return a table with a row per curve."""
        sizes = next(iter(self.curves.values()))
        rows = [[name, *map(short, curve.values())] for name, curve in self.curves.items()]
        return pages.table([f"{self.counted} ({self.unit})", *(f"{size:,}" for size in sizes)], rows)


def short(value: float) -> str:
    """Return a value with three digits, or whole."""
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


# -------------------------------------------------------------------------------------------------------- hooks


class Called(Hook):
    """A hook that is called at every step."""

    def after_train_iter(self, runner: Runner) -> None:
        """Do nothing."""


class NotDue(Hook):
    """A hook that is not due at any measured step."""

    @every(1_000_000)
    def after_train_iter(self, runner: Runner) -> None:
        """Do nothing."""


def registration(hooks: int) -> dict[str, float]:
    """Return the milliseconds to create a runner with so many hooks, and from then on to the first step."""
    model, given = nn.Linear(1, 1), [NotDue() for _ in range(hooks)]
    first: list[float] = []

    def step(model: nn.Module, batch: int, optim: Optim) -> dict[str, torch.Tensor]:
        first.append(time.process_time())
        return {"loss": LOSS}

    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        runner = Runner(
            model,
            train=TrainLoop([0], step, max_epochs=1),
            optim=Optim(torch.optim.SGD(model.parameters(), lr=0.1)),
            default_hooks=ONLY_SCHEDULER,
            custom_hooks=given,
            writers=[],
            work_dir=Path(folder) / "run",
            device="cpu",
            quiet=True,
        )
        created = time.process_time()
        runner.train()
    return {"registered": (created - began) * 1e3, "then to the first step": (first[0] - created) * 1e3}


def calls(hooks: int) -> dict[str, float]:
    """Return the microseconds per step of so many hooks, after the steps in which everything is compiled."""
    found = {}
    for name, kind, steps in (
        ("called at every step", Called, max(200, 20_000 // (hooks + 10))),
        ("not due", NotDue, 20_000),
    ):
        run = simulate(
            [200, 200 + steps], default_hooks=ONLY_SCHEDULER, custom_hooks=[kind() for _ in range(hooks)], writers=[]
        )
        found[name] = run.microseconds[0]
    return found


# ------------------------------------------------------------------------------ numbers, steps, parameter groups


class Numbers(Hook):
    """Records so many numbers at every step."""

    priority = "VERY_HIGH"

    def __init__(self, count: int) -> None:
        self.numbers = {f"train/number_{i}": float(i) for i in range(count)}

    def after_train_iter(self, runner: Runner) -> None:
        """Record them."""
        for name, value in self.numbers.items():
            runner.hub.update_scalar(name, value)


def numbers(count: int) -> dict[str, float]:
    """Return the microseconds per step of so many recorded numbers, with a record in a file every 10 steps."""
    steps = [100, 100 + max(200, 20_000 // (count + 10) // 10 * 10)]
    run = simulate(steps, default_hooks=LOGGED, custom_hooks=[Numbers(count)], writers=["jsonl"])
    return {"recorded": run.microseconds[0]}


def long_runs(steps: int) -> list[Panel]:
    """Measure the cost per step and the memory of two runs with the default hooks, at every power of ten.

    The second one validates: two batches, every 1,000 steps, with a metric of each kind.
    """
    marks = [10**power for power in range(2, len(str(steps)))]
    parts: dict[str, Any] = {"default_hooks": {"checkpoint": None}, "writers": ["jsonl"]}
    data = [(torch.ones(4, 3), torch.zeros(4, dtype=torch.long))] * 2
    val = EvalLoop(data, lambda model, batch: batch, metrics={"share": accuracy, "seen": Seen()}, loss=lambda *_: LOSS)
    runs = {
        "training": simulate(marks, **parts),
        "with validations": simulate(marks, val=val, val_interval=1000, **parts),
    }
    return [
        Panel(
            "A long run",
            "steps",
            "us per step",
            {n: dict(zip(marks[1:], run.microseconds, strict=True)) for n, run in runs.items()},
        ),
        Panel(
            "Memory of a long run",
            "steps",
            "MB",
            {n: dict(zip(marks[1:], run.memory[1:], strict=True)) for n, run in runs.items()},
        ),
    ]


class Seen:
    """A metric with a state: the number of samples."""

    def __init__(self) -> None:
        self.samples = 0

    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None:
        """Count the samples of a batch."""
        self.samples += len(target)

    def compute(self) -> float:
        """Return the number of samples."""
        return float(self.samples)

    def reset(self) -> None:
        """Start from scratch."""
        self.samples = 0


def groups(count: int) -> dict[str, float]:
    """Return the microseconds per step with so many parameter groups and a scheduler, beside a bare loop.

    Both take the fastest of five pieces, after the steps in which a run prepares its first records. Every piece has
    whole periods of the records that hookline writes every 10 steps.
    """
    piece = max(10, 1_000 // (count + 10) // 10 * 10)
    marks = [100 + piece * number for number in range(6)]
    model = nn.ParameterList([nn.Parameter(torch.ones(1)) for _ in range(count)])
    optimizer = torch.optim.SGD([{"params": [weight]} for weight in model], lr=1e-6)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9999)
    bare = Simulation(marks)
    for batch in bare:
        optimizer.zero_grad()
        sum_of(model, batch).backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
        optimizer.step()
        scheduler.step()
    parts = {"model": model, "optimizer": optimizer, "schedulers": [(scheduler, "iter")]}
    run = simulate(marks, sum_of, default_hooks={"checkpoint": None}, writers=["jsonl"], **parts)
    return {"bare loop": min(bare.microseconds), "hookline": min(run.microseconds)}


def sum_of(model: Any, batch: int) -> torch.Tensor:
    """Return the sum of all parameters."""
    return torch.cat(list(model)).sum()


# ------------------------------------------------------------------------------------------- checkpoints and runs


def saving_runner(folder: Path, max_iters: int, resume: bool) -> Runner:
    """Return a runner that saves at the end."""
    model = nn.Linear(1, 1)
    return Runner(
        model,
        train=TrainLoop([torch.ones(1, 1)], lambda net, batch: net(batch).sum(), max_iters=max_iters),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=0.1)),
        default_hooks={"checkpoint": {"interval": 1, "by_epoch": False}},
        work_dir=folder,
        device="cpu",
        quiet=True,
        resume=resume,
    )


def checkpoints(count: int) -> dict[str, float]:
    """Return the milliseconds to find the newest of so many checkpoints, and to resume from it, step and save."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        saving_runner(run, max_iters=1, resume=False).train()
        for number in range(count, 1, -1):
            shutil.copy(run / "iter_1.pth", run / f"iter_{number}.pth")
        began = time.process_time()
        assert newest_intact([run], lambda text: None) is not None
        found = time.process_time()
        saving_runner(run, max_iters=2, resume=True).train()
        resumed = time.process_time()
    return {"find the newest": (found - began) * 1e3, "resume, step, save": (resumed - found) * 1e3}


def compared_runs(count: int) -> dict[str, float]:
    """Return the milliseconds of `hookline compare` with so many runs."""
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder) / "0"
        saving_runner(first, max_iters=20, resume=False).train()
        paths = [first, *(Path(folder) / str(number) for number in range(1, count))]
        for path in paths[1:]:
            shutil.copytree(first, path, ignore=shutil.ignore_patterns("*.pth"))
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            began = time.process_time()
            compare.run(paths, every=True)
            return {"hookline compare": (time.process_time() - began) * 1e3}


# ----------------------------------------------------------------------------------------------------- measuring


def measure(
    title: str, counted: str, unit: str, one: Callable[[int], dict[str, float]], sizes: Sequence[int], rounds: int
) -> Panel:
    """Return the minimum of all rounds for every size. The sizes take turns."""
    least: Curves = {}
    one(sizes[0])  # the first time imports modules
    for _ in range(rounds):
        for size in sizes:
            gc.collect()
            for name, value in one(size).items():
                curve = least.setdefault(name, {})
                curve[size] = min(value, curve.get(size, value))
    return Panel(title, counted, unit, least)


def measure_all(largest: int, steps: int, rounds: int) -> list[Panel]:
    """Measure everything, with sizes up to the largest."""
    sizes = [size for size in (1, 10, 100, 1000) if size <= largest]
    return [
        measure("Creating a runner with hooks", "hooks", "ms", registration, [0, *sizes], rounds),
        measure("Hooks in a step", "hooks", "us per step", calls, [0, *sizes], rounds),
        measure("Recorded numbers", "numbers", "us per step", numbers, sizes, rounds),
        measure("Parameter groups", "groups", "us per step", groups, sizes, rounds),
        measure("Checkpoints in a folder", "checkpoints", "ms", checkpoints, sizes, rounds),
        measure("Runs to compare", "runs", "ms", compared_runs, sizes, rounds),
        *long_runs(steps),
    ]


def main() -> None:
    """Measure, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=1000, help="the largest number of hooks, numbers, groups, files")
    parser.add_argument("--steps", type=int, default=1_000_000, help="steps of the long runs; a power of ten")
    parser.add_argument("--rounds", type=int, default=3, help="measurements per size")
    parser.add_argument("--write", action="store_true", help="write the figures into docs/performance.md")
    options = parser.parse_args()
    if options.steps < 1000 or set(str(options.steps)[1:]) != {"0"}:
        parser.error(f"--steps must be a power of ten, and at least 1000, not {options.steps}")
    torch.set_num_threads(1)
    panels = measure_all(options.largest, options.steps, options.rounds)
    tables = "\n\n".join(f"{panel.title}:\n\n{panel.as_table()}" for panel in panels)
    print(tables)
    if options.write:
        when = f"Measured on {date.today().isoformat()} with `python benchmarks/growth.py`, in CPU time."
        text = f"{when}\n\n![Lines: cost against size.](images/growth.svg)\n\n{tables}"
        pages.save("docs/images/growth.svg", picture_of(panels))
        pages.write("docs/performance.md", "growth", text)


def picture_of(panels: Sequence[Panel]) -> str:
    """Return the picture with all panels."""
    return charts.lines(
        "How costs grow",
        [
            (title, {name: list(curve.items()) for name, curve in curves.items()}, (counted, unit))
            for title, counted, unit, curves in panels
        ],
    )


if __name__ == "__main__":
    main()

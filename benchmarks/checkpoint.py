"""Measure the cost of a save and of a resume.

For a save of a 100 MB model, measure how long training is blocked: with torch.save and fsync, with hookline, and with
hookline in the background. The minimum of all saves counts. For a resume, measure the time until its first batch: at
step 5, and in the middle of a long epoch.

python benchmarks/checkpoint.py            tables
python benchmarks/checkpoint.py --json     the same as JSON
python benchmarks/checkpoint.py --write    also write them into docs/performance.md
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import pages
from hookline import Optim, Runner, TrainLoop
from hookline.data import ResumableLoader

BATCHES = 100_000


# -- saving


def make_model(megabytes: int) -> nn.Module:
    """Return a net with this many MB of weights."""
    return nn.Sequential(*(nn.Linear(1000, 1000) for _ in range(megabytes // 4)))


def tiny_step(model: nn.Module, batch: Tensor) -> Tensor:
    """Compute a loss that uses every weight and takes little time."""
    return sum((parameter[:1].sum() for parameter in model.parameters()), torch.zeros(())) * 1e-9


def plain(folder: Path, megabytes: int, saves: int) -> list[float]:
    """Save the model and the optimizer with torch.save and fsync, each time to a new file; return the seconds."""
    model = make_model(megabytes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seconds = []
    for number in range(saves):
        began = time.perf_counter()
        with open(folder / f"{number}.pth", "wb") as file:
            torch.save({"state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
            file.flush()
            os.fsync(file.fileno())
        seconds.append(time.perf_counter() - began)
        (folder / f"{number}.pth").unlink()
        time.sleep(0.5)
    return seconds


def with_hookline(folder: Path, megabytes: int, saves: int, async_save: bool) -> list[float]:
    """Save as a run does (complete, hashed, synced to disk, verified); return the seconds that each save blocked."""
    model = make_model(megabytes)
    runner = Runner(
        model,
        train=TrainLoop([torch.zeros(1)] * saves, tiny_step, max_epochs=1),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=0.01)),
        default_hooks={
            "checkpoint": {
                "interval": 1,
                "by_epoch": False,
                "max_keep_ckpts": 1,
                "save_last": False,
                "async_save": async_save,
            }
        },
        work_dir=folder,
        device="cpu",
        quiet=True,
    )
    seconds: list[float] = []

    @runner.on("before_train_iter")
    def note(runner: Runner) -> None:
        if runner.iter:
            seconds.append(runner.saving.seconds - sum(seconds))
        time.sleep(0.5)  # long enough for a background save to end before the next one

    runner.train()
    seconds.append(runner.saving.seconds - sum(seconds))
    return seconds


# -- resuming


class Numbers(Dataset[Tensor]):
    """A dataset so long that replaying it would show in the results."""

    draws_random_numbers = False

    def __len__(self) -> int:
        return 2 * BATCHES

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((4,), float(index % 7))


def resume_runner(folder: Path, **parts: Any) -> Runner:
    """Return a run with one epoch of many batches."""
    model = nn.Linear(4, 1)
    return Runner(
        model,
        train=TrainLoop(
            ResumableLoader(Numbers(), 2, shuffle=True), lambda model, batch: model(batch).mean(), max_epochs=1
        ),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=0.0)),
        default_hooks={"checkpoint": {"interval": 0, "save_last": False}, "logger": None},
        work_dir=folder,
        device="cpu",
        quiet=True,
        **parts,
    )


def save_at(folder: Path, step: int) -> Path:
    """Save a checkpoint in the middle of the epoch, and return its path. The position is set, so only one step runs."""
    runner = resume_runner(folder)
    runner.position.iter = runner.position.batch = step - 1
    runner.on("after_train_iter")(lambda runner: (runner.request_save(), runner.stop("here")))
    runner.train()
    return folder / f"iter_{step}.pth"


def resume(path: Path, folder: Path) -> float:
    """Return the seconds from the start of a resumed run to its first batch."""
    runner = resume_runner(folder, resume=path)
    seconds: list[float] = []
    began = time.perf_counter()

    @runner.on("before_train_iter")
    def arrived(runner: Runner) -> None:
        seconds.append(time.perf_counter() - began)
        runner.stop("measured")

    runner.train()
    return seconds[0]


# -- both


def measure(megabytes: int, saves: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return the milliseconds of each case: the least of all saves, the median of resumes. The cases take turns."""
    kinds: dict[str, Callable[[Path], list[float]]] = {
        "torch.save, fsync": lambda folder: plain(folder, megabytes, saves),
        "hookline": lambda folder: with_hookline(folder, megabytes, saves, async_save=False),
        "hookline, async_save": lambda folder: with_hookline(folder, megabytes, saves, async_save=True),
    }
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    at: dict[str, list[float]] = {"at step 5": [], f"at step {BATCHES // 2:,}": []}
    with tempfile.TemporaryDirectory(prefix="hookline-benchmark-") as name:
        folder = Path(name)
        for number in range(rounds):
            for kind, run in kinds.items():
                own = folder / f"{kind}-{number}"
                own.mkdir()
                seconds[kind] += run(own)
        paths = [save_at(folder / f"from-{step}", step) for step in (5, BATCHES // 2)]
        for number in range(rounds * 3):
            for each, path in zip(at.values(), paths, strict=True):
                each.append(resume(path, folder / f"to-{path.stem}-{number}"))
    return {
        "save": {kind: 1000 * min(found) for kind, found in seconds.items()},
        "resume": {kind: 1000 * statistics.median(found) for kind, found in at.items()},
    }


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--saves", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="write the figures into docs/performance.md")
    given = parser.parse_args()
    found = measure(given.megabytes, given.saves, given.rounds)
    if given.json:
        print(json.dumps(found))
        return
    for title, rows in found.items():
        base = next(iter(rows.values()))
        print(f"{title:<24} {'ms':>9} {'ratio':>7}")
        for name, value in rows.items():
            print(f"{name:<24} {value:9.1f} {value / base:7.2f}")
    if given.write:
        pages.write("docs/performance.md", "saves", as_page(found, given.megabytes))


def as_page(found: dict[str, dict[str, float]], megabytes: int) -> str:
    """Return the tables of docs/performance.md."""
    parts = [
        f"Measured on {date.today().isoformat()} with `python benchmarks/checkpoint.py`, torch {torch.__version__}."
    ]
    titles = {"save": f"a save of {megabytes} MB: training waits", "resume": "a resume: until its first batch"}
    for kind, rows in found.items():
        base = next(iter(rows.values()))
        table = [
            [name, f"{value:.0f}" if value >= 10 else f"{value:.1f}", f"{value / base:.2f}"]
            for name, value in rows.items()
        ]
        parts.append(pages.table([titles[kind], "milliseconds", "ratio"], table))
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()

"""Measure the startup: the time from typing a command to the first step, against a script with a bare loop.

python benchmarks/startup.py             a table
python benchmarks/startup.py --write     also write it into docs/performance.md

Every case is a new process. All train the same net, whose step reports the time and ends the process at once. The cases
take turns, and the minimum of several rounds counts. The number of loaded modules explains most of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pages

NET = """\
import json, os, sys, time

import torch
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 1024

    def __getitem__(self, index):
        return torch.ones(64), index % 10


def loss_of(model, batch):
    report = [time.monotonic(), time.process_time(), len(sys.modules)]
    with open(os.environ["STARTUP_REPORT"], "w") as file:
        json.dump(report, file)
    os._exit(0)
"""

BARE = """\
import torch
from net import Data, Net, loss_of

model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 16)
for batch in torch.utils.data.DataLoader(Data(), 64, shuffle=True):
    optimizer.zero_grad()
    loss_of(model, batch)
"""

CONFIG = """\
model: {type: "net:Net"}
train:
  dataloader: {dataset: {type: "net:Data"}, batch_size: 64, shuffle: true}
  step: "net:loss_of"
  max_epochs: 1
optim: {optimizer: {type: AdamW, lr: 1.0e-3}, schedulers: [{type: CosineAnnealingLR, T_max: 16, when: iter}]}
"""

EVERYTHING = (
    CONFIG
    + """\
custom_hooks: [{type: ProgressHook}]
writers: [jsonl, tensorboard]
"""
)

HOOKLINE = ["-c", "from hookline.cli import main; main()"]
#: The arguments of Python in each case.
CASES = {
    "a bare script": ["bare.py"],
    "hookline train": [*HOOKLINE, "train", "config.yaml"],
    "hookline train, with logging, a progress bar and checkpoints": [*HOOKLINE, "train", "everything.yaml"],
}
COMMANDS = {
    "python, nothing imported": ["-c", "pass"],
    "hookline --help": [*HOOKLINE, "--help"],
    "hookline hooks": [*HOOKLINE, "hooks"],
    "hookline schema": [*HOOKLINE, "schema"],
    "python, torch imported": ["-c", "import torch"],
}


class Start(NamedTuple):
    """What a process took until its first step: seconds by the wall clock, CPU seconds, and loaded modules."""

    wall: float
    cpu: float
    modules: int


def start(arguments: Sequence[str], folder: Path) -> Start:
    """Start a training, and return what it took to the first step."""
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    began = time.monotonic()
    ended = _run(arguments, folder)
    if not report.exists():
        raise SystemExit(f"{arguments} made no step: {ended.stderr[-2000:]}")
    at, cpu, modules = json.loads(report.read_text())
    return Start(at - began, cpu, modules)


def answer(arguments: Sequence[str], folder: Path) -> Start:
    """Run a command to its end, and return what it took."""
    before, began = os.times(), time.monotonic()
    ended = _run(arguments, folder)
    after = os.times()
    if ended.returncode:
        raise SystemExit(f"{arguments} failed: {ended.stderr[-2000:]}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Start(time.monotonic() - began, cpu, 0)


def _run(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "STARTUP_REPORT": str(folder / "report.json"),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(pages.ROOT / "src"), str(folder)]),
    }
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def measure(rounds: int) -> dict[str, list[Start]]:
    """Return the measurements of all cases, which take turns."""
    found: dict[str, list[Start]] = {name: [] for name in [*CASES, *COMMANDS]}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {"net.py": NET, "bare.py": BARE, "config.yaml": CONFIG, "everything.yaml": EVERYTHING}
        for file, text in files.items():
            (folder / file).write_text(text)
        for number in range(rounds + 1):
            for case in found:
                once = start(CASES[case], folder) if case in CASES else answer(COMMANDS[case], folder)
                if number:  # the first round only fills the cache of files
                    found[case].append(once)
    return found


def as_table(found: dict[str, list[Start]]) -> str:
    """Return the minimum of each case as a table."""
    rows = []
    for name, several in found.items():
        wall, cpu, modules = zip(*several, strict=True)
        spread = statistics.median(wall) / min(wall) - 1
        rows.append(
            [name, f"{min(wall):.2f}", f"{min(cpu):.2f}", f"{spread:.0%}", f"{modules[0]:,}" if modules[0] else ""]
        )
    return pages.table(["", "seconds", "CPU seconds", "spread", "modules"], rows)


def main() -> None:
    """Measure, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="measurements per case")
    parser.add_argument("--write", action="store_true", help="write the figures into docs/performance.md")
    options = parser.parse_args()
    table = as_table(measure(options.rounds))
    print(table)
    if options.write:
        where = f"Python {platform.python_version()}, {platform.system()}, {os.cpu_count()} CPUs"
        when = f"Measured on {date.today().isoformat()} with `python benchmarks/startup.py`; {where}."
        pages.write("docs/performance.md", "startup", f"{when}\n\n{table}")


if __name__ == "__main__":
    main()

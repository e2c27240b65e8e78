"""Failures that are injected into runs, repeated with `hookline replay`, and compared: error, step and loss bits.

Each case is a run of the project below: a script, a loop of its own or a config, in one process or in two. The figure
REPLAY of `make faults` counts them.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.faults import children

PROJECT = '''
import os, signal, sys
import torch
from torch.utils.data import get_worker_info
import hookline
from hookline import Hook, Optim, Runner, TrainLoop
from hookline.data import ResumableLoader
from hookline.hooks import EMAHook


class Data:
    """32 samples. The sample `at` has a fault."""

    def __init__(self, fault="", at=29):
        self.fault, self.at = fault, at

    def __len__(self):
        return 32

    def __getitem__(self, index):
        features = torch.linspace(-1, 1, 4) * (index + 1) / 32 + torch.randn(4) / 10
        if index == self.at:
            if self.fault == "data":
                raise ValueError(f"sample {index} cannot be read")
            if self.fault == "kill" and get_worker_info() is not None:
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault == "shape":
                features = features[:3]
            if self.fault == "nan":
                features[1] = float("nan")
            if self.fault == "label":
                return features, torch.tensor(7)
        return features, torch.tensor(index % 2)


class Fails(Hook):
    """Raises at a point of an iteration, in one process."""

    def __init__(self, at, point="after_train_iter", rank=0):
        self.at, self.point, self.rank = at, point, rank

    def _look(self, runner, point):
        if point == self.point and runner.iter + 1 == self.at and runner.rank == self.rank:
            raise RuntimeError(f"planned at {point}")

    def before_train_iter(self, runner):
        self._look(runner, "before_train_iter")

    def after_backward(self, runner):
        self._look(runner, "after_backward")

    def after_train_iter(self, runner):
        self._look(runner, "after_train_iter")


class Watches(Fails):
    role = "observer"


class Net(torch.nn.Module):
    def __init__(self, fault="", at=7):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 2)
        )
        self.fault, self.at = fault, at
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += self.training
        if self.training and self.fault and int(self.calls) == self.at:
            if self.fault == "memory":
                return torch.empty(1 << 60)
            if self.fault == "root":  # a finite loss, and gradients of NaN
                return self.body(x) + torch.sqrt((x * 0).sum() * self.body[0].weight.sum() * 0)
        return self.body(x)


def loss_of(model, batch):
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


def build(case):
    torch.manual_seed(3)
    model = Net(case.get("net", ""), case.get("at", 7))
    hooks = [EMAHook()] if case.get("ema") else []
    if case.get("hook"):
        kind = Watches if case.get("observer") else Fails
        hooks.append(kind(case.get("at", 7), case["hook"], case.get("rank", 0)))
    data = Data(case.get("data", ""), case.get("sample", 29))
    loader = ResumableLoader(data, batch_size=4, shuffle=True, num_workers=case.get("workers", 0))
    given = {
        "work_dir": "run",
        "device": "cpu",
        "seed": 5,
        "default_hooks": {"checkpoint": {"interval": case["interval"], "by_epoch": False, "max_keep_ckpts": 2}},
    }
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return model, optimizer, loader, hooks, given


def train(case):
    model, optimizer, loader, hooks, given = build(case)
    loop = TrainLoop(loader, loss_of, max_epochs=3)
    optim = Optim(optimizer, accumulate=case.get("accumulate", 1))
    Runner(model, train=loop, optim=optim, custom_hooks=hooks, quiet=True, **given).train()


def own_loop(case):
    model, optimizer, loader, hooks, given = build(case)
    with hookline.session(model, optimizer, loader, max_epochs=3, hooks=hooks, quiet=True, **given) as run:
        for number, batch in enumerate(run):
            loss = loss_of(run.model, batch)
            if case.get("body") and run.runner.iter + 1 == case["body"]:
                raise KeyError("planned in the body")
            run.step(loss)
'''
SCRIPT = """
import json, sys
import hookline
import project

if __name__ == "__main__":
    case = json.loads(sys.argv[1])
    call = project.own_loop if case.get("own_loop") else project.train
    if case.get("nproc"):
        hookline.launch(call, case, nproc=case["nproc"])
    else:
        call(case)
"""
CONFIG = """
model: {{type: "project:Net", fault: "{net}", at: {at}}}
train:
  dataloader: {{dataset: {{type: "project:Data", fault: "{data}"}}, batch_size: 4, shuffle: true}}
  step: "project:loss_of"
  max_epochs: 3
optim: {{optimizer: {{type: Adam, lr: 0.01}}}}
default_hooks: {{checkpoint: {{interval: {interval}, by_epoch: false}}}}
custom_hooks: {hooks}
device: cpu
seed: 5
work_dir: run
"""


@dataclass(frozen=True)
class Replayed:
    """A failure, and how its run is started."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    config: bool = False
    nproc: int = 1


#: Each of these fails before the first checkpoint, and after it.
FAULTS: dict[str, dict[str, Any]] = {
    "a sample cannot be read": {"data": "data"},
    "a sample has another shape": {"data": "shape"},
    "a label is out of range": {"data": "label"},
    "a sample is NaN": {"data": "nan"},
    "a gradient is NaN": {"net": "root"},
    "no memory is left": {"net": "memory"},
    "a hook raises before the step": {"hook": "before_train_iter"},
    "a hook raises after the backward pass": {"hook": "after_backward"},
    "a hook raises after the step": {"hook": "after_train_iter"},
    "an observer raises": {"hook": "after_train_iter", "observer": True},
    "a worker cannot read a sample": {"data": "data", "workers": 2},
    "a worker is killed": {"data": "kill", "workers": 1},
    "a hook raises with accumulation and EMA": {"hook": "after_train_iter", "accumulate": 2, "ema": True},
    "the body of an own loop raises": {"own_loop": True, "body": 7},
}


def _cases() -> list[Replayed]:
    found = [
        Replayed(f"{name}, {when}", {**options, "interval": interval})
        for name, options in FAULTS.items()
        for when, interval in (("at first", 100), ("later", 2))
    ]
    found.append(Replayed("a config whose hook raises", {"hooks": "after_train_iter", "interval": 2}, config=True))
    found.append(Replayed("a config whose sample is NaN", {"data": "nan", "interval": 100}, config=True))
    return found


CASES = _cases()
#: The same in two processes.
OF_TWO = [
    Replayed("a hook raises in rank 1", {"hooks": "after_train_iter", "rank": 1, "interval": 2}, config=True, nproc=2),
    Replayed("a sample of rank 1 cannot be read", {"data": "data", "interval": 100}, config=True, nproc=2),
    Replayed("a script that starts two processes", {"hook": "after_train_iter", "rank": 1, "interval": 2, "nproc": 2}),
]


def fail_and_replay(case: Replayed, root: Path) -> str:
    """Let a run fail, and repeat its failure in new processes. Return what was wrong; empty if nothing was."""
    (root / "project.py").write_text(PROJECT)
    (root / "train.py").write_text(SCRIPT)
    options, environment = case.options, {"OMP_NUM_THREADS": "1"}
    if case.config:
        hook = options.get("hooks")
        given = {"type": "project:Fails", "at": 7, "point": hook, "rank": options.get("rank", 0)}
        values = {"net": "", "at": 7, "data": "", **options, "hooks": json.dumps([given] if hook else [])}
        (root / "c.yaml").write_text(CONFIG.format(**values))
        several = ["--nproc", str(case.nproc)] if case.nproc > 1 else []
        code, failed = children.command("train", "c.yaml", *several, cwd=root, timeout=300, environment=environment)
    else:
        with children.running(run_script, str(root), options) as child:
            code, failed = child.wait(300), child.output()
    if code == 0:
        return "the run did not fail"
    words = ["replay", "run", "--json"]
    code, printed = children.command(*words, cwd=root, timeout=300, environment=environment)
    try:
        found = json.loads(printed[printed.index("{") :])
    except ValueError:
        return f"no result: {printed[-2000:]}{failed[-1000:]}"
    if code or not found["same"] or found["warnings"]:
        return f"not repeated: {found}"
    if (options["interval"] < 100) != (found["from"] is not None):
        return f"it began at {found['from']}"
    # The death of a worker is noticed up to a few steps before its batch is needed.
    begun = min(found["steps"][0], found["replayed_error"]["step"])
    if found["bits"]["differ_at"] is not None or found["bits"]["compared"] < begun - 1 - found["start"]:
        return f"not all losses were compared: {found}"
    return ""


def run_script(folder: str, options: dict[str, Any]) -> None:
    """Run the script of the project as `python train.py` would; called in a child."""
    os.chdir(folder)
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.argv, sys.path[:0] = ["train.py", json.dumps(options)], [folder]
    runpy.run_path("train.py", run_name="__main__")


def measure(cases: list[Replayed] | None = None) -> tuple[int, list[str]]:
    """Replay all cases. Return how many there are, and what was wrong with which."""
    wrong, cases = [], [*CASES, *OF_TWO] if cases is None else cases
    with TemporaryDirectory(prefix="hookline-replays-") as folder:
        for number, case in enumerate(cases):
            root = Path(folder, str(number))
            root.mkdir()
            if problem := fail_and_replay(case, root):
                wrong.append(f"{case.name}: {problem}")
    return len(cases), wrong

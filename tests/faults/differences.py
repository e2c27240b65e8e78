"""Differences that are planted into runs, found by `hookline diff` with their step, kind and name.

One run is trained without any, and each case is a second run that differs in one thing. Most of these never show in a
loss. The figure DIFF of `make faults` counts them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.faults import children

PROJECT = '''
import math
import random

import numpy as np
import torch

from hookline import Hook


def flip(tensor):
    """Change the lowest bit of the first number."""
    with torch.no_grad():
        tensor.view(-1)[:1].view(torch.int32).bitwise_xor_(1)


class Data:
    """24 samples. One bit of a sample may differ."""

    def __init__(self, flipped=-1):
        self.flipped = flipped

    def __len__(self):
        return 24

    def __getitem__(self, index):
        features = torch.linspace(-1, 1, 4) * (index + 1) / 24 + torch.randn(4) / 10
        if index == self.flipped:
            flip(features)
        return features, torch.tensor(index % 2)


class Net(torch.nn.Module):
    def __init__(self, noisy_at=0):
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.last = torch.nn.Linear(8, 2)
        self.unused = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("calls", torch.zeros(()))
        self.noisy_at = noisy_at

    def forward(self, x):
        self.calls += self.training
        x = self.norm(self.first(x))
        if self.noisy_at and int(self.calls) == self.noisy_at:
            x = x * (1 + 2e-7)
        return self.last(x.relu())


class Counts(Hook):
    """Has a state that nothing depends on."""

    def __init__(self):
        self.seen = 0

    def after_train_iter(self):
        self.seen += 1

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


class Plants(Hook):
    """Changes one thing in one step."""

    def __init__(self, what, at=6):
        self.what, self.at = what, at

    def before_train_iter(self, runner):
        if runner.iter + 1 == self.at and self.what == "batch":
            flip(runner.data_batch[0])

    def after_backward(self, runner):
        if runner.iter + 1 != self.at:
            return
        if self.what == "gradient":
            flip(runner.model.first.weight.grad)
        if self.what == "gradient of an unused parameter":
            runner.model.unused.grad = torch.full((3,), 1e-3)

    def after_train_iter(self, runner):
        if runner.iter + 1 != self.at:
            return
        model, optimizer = runner.model, runner.optim.optimizer
        group = optimizer.param_groups[0]
        if self.what == "torch":
            torch.rand(1)
        if self.what == "numpy":
            np.random.rand()
        if self.what == "python":
            random.random()
        if self.what == "parameter":
            flip(model.last.bias)
        if self.what == "unused parameter":
            flip(model.unused)
        if self.what == "buffer":
            model.norm.num_batches_tracked += 1
        if self.what == "running mean":
            flip(model.norm.running_mean)
        if self.what == "rate":
            group["lr"] = math.nextafter(group["lr"], 1)
        if self.what == "decay":
            group["weight_decay"] = 1e-12
        if self.what == "moment":
            flip(optimizer.state[model.first.bias]["exp_avg_sq"])
        if self.what == "frozen":
            model.unused.requires_grad_(False)
        if self.what == "mode":
            model.norm.eval()
        for entry in runner._host.plan:
            if self.what == "state" and entry.name == "Counts":
                entry.hook.seen += 100
            if self.what == "average" and entry.name == "EMAHook":
                flip(entry.hook.average.state_dict(model)["averaged"]["first.weight"])


def loss_of(model, batch):
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


def other_loss_of(model, batch):
    loss = loss_of(model, batch)
    return loss * (1 + 1e-6) if int(model.calls) == 6 else loss
'''
CONFIG: dict[str, Any] = {
    "model": {"type": "project:Net"},
    "train": {
        "dataloader": {"dataset": {"type": "project:Data"}, "batch_size": 4, "shuffle": True},
        "step": "project:loss_of",
        "max_epochs": 2,
    },
    "optim": {"optimizer": {"type": "Adam", "lr": 0.01}},
    "default_hooks": {"checkpoint": {"interval": 4, "by_epoch": False}},
    "custom_hooks": [{"type": "project:Counts"}, {"type": "EMAHook"}],
    "device": "cpu",
    "seed": 5,
}


@dataclass(frozen=True)
class Planted:
    """A difference: the overrides of the second run, and the step, the kind and the name that have to be found."""

    name: str
    overrides: tuple[str, ...]
    step: int
    kind: str
    at: str
    #: The steps to run again, of a difference that is gone before the next record: a rounding removes it.
    steps: str = ""


def planted(what: str, step: int, kind: str, at: str, steps: str = "") -> Planted:
    """Return a difference that the hook of the project makes."""
    hooks = [*CONFIG["custom_hooks"], {"type": "project:Plants", "what": what}]
    return Planted(what, (f"custom_hooks={json.dumps(hooks)}",), step, kind, at, steps)


CASES = [
    Planted("one bit of a sample", ("train.dataloader.dataset.flipped=7",), 0, "batch", "0"),
    Planted("a batch that is left out", ("train.skip=6",), 6, "batch", "0"),
    Planted("another order", ("train.dataloader.shuffle=false",), 1, "batch", "0"),
    Planted("another seed", ("seed=6",), 1, "parameter before the step", "first.weight"),
    planted("batch", 6, "batch", "0", "5..8"),
    planted("torch", 7, "random numbers", "torch"),
    planted("numpy", 7, "random numbers", "numpy"),
    planted("python", 7, "random numbers", "python"),
    Planted("an output of a module", ("model.noisy_at=6",), 6, "module output", "last"),
    Planted("the loss", ("train.step=project:other_loss_of",), 6, "loss", "loss"),
    planted("gradient", 6, "gradient", "first.weight"),
    planted("gradient of an unused parameter", 6, "gradient", "unused"),
    planted("parameter", 6, "parameter", "last.bias", "5..8"),
    planted("unused parameter", 6, "parameter", "unused"),
    planted("buffer", 6, "buffer", "norm.num_batches_tracked"),
    planted("running mean", 6, "buffer", "norm.running_mean", "5..8"),
    planted("frozen", 6, "mode", "unused (requires_grad)"),
    planted("mode", 6, "mode", "norm"),
    planted("rate", 6, "learning rate", "group 0 lr"),
    Planted(
        "a rate in the config", ("optim.optimizer.lr=0.0100000001",), 1, "learning rate before the step", "group 0 lr"
    ),
    planted("decay", 6, "optimizer", "group 0 weight_decay"),
    planted("moment", 6, "optimizer", "first.bias/exp_avg_sq"),
    planted("state", 6, "hook state", "Counts/seen"),
    planted("average", 6, "hook state", "EMAHook"),
]


def train(root: Path, name: str, overrides: Sequence[str] = ()) -> None:
    """Train a run of the project in `root`."""
    (root / "project.py").write_text(PROJECT)
    (root / "c.yaml").write_text(json.dumps(CONFIG))
    words = ["train", "c.yaml", f"work_dir={name}", *overrides]
    code, printed = children.command(*words, cwd=root, timeout=300, environment={"OMP_NUM_THREADS": "1"})
    assert code == 0, printed


def find(root: Path, case: Planted) -> str:
    """Train a run with the difference, and look for it. Return what was wrong; empty if nothing was."""
    train(root, "other", case.overrides)
    words = ["diff", "run", "other", "--json", *(["--steps", case.steps] if case.steps else [])]
    code, printed = children.command(*words, cwd=root, timeout=300, environment={"OMP_NUM_THREADS": "1"})
    try:
        found = json.loads(printed[printed.index("{") :])
    except ValueError:
        return f"no result: {printed[-2000:]}"
    first = found["first"]
    if code != 1 or first is None or found["warnings"]:
        return f"not found: {found}"
    if any(side["differs_from_record_at"] is not None for side in found["replayed"]):
        return f"a replay did not follow its record: {found}"
    if (first["step"], first["kind"]) != (case.step or first["step"], case.kind) or case.at not in first["name"]:
        return f"expected step {case.step}, {case.kind} {case.at}, not {first}"
    return "" if found["equal_until"] == first["step"] - 1 else f"it is said to be equal until another step: {found}"


def measure(cases: Sequence[Planted] = tuple(CASES)) -> tuple[int, list[str]]:
    """Look for all differences. Return how many there are, and what was wrong with which."""
    wrong = []
    with TemporaryDirectory(prefix="hookline-differences-") as folder:
        for number, case in enumerate(cases):
            root = Path(folder, str(number))
            root.mkdir()
            train(root, "run")
            if problem := find(root, case):
                wrong.append(f"{case.name}: {problem}")
    return len(cases), wrong

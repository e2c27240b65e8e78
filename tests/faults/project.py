"""The small project that every bad input is put into: a config, a module beside it, and a run that was made of them."""

from __future__ import annotations

import json
from functools import cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from hookline.checkpoint import store
from hookline.checkpoint.seal import Note
from tests.faults.children import command

MYNET = """
import os
from os import system

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, hidden: int = 3):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, inputs):
        return self.layers(inputs)


class Data(torch.utils.data.Dataset):
    def __init__(self, samples: int = 8):
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        return torch.full((4,), float(index) / 8), index % 2


def loss_of(model, batch):
    inputs, target = batch
    return nn.functional.cross_entropy(model(inputs), target)


def predict(model, batch):
    inputs, target = batch
    return model(inputs), target
"""

# A line a key, so that a message about one of them always names the same line.
CONFIG = {
    "model": '{type: "mynet:Net"}',
    "train": '{dataloader: {dataset: {type: "mynet:Data"}, batch_size: 4}, step: "mynet:loss_of", max_epochs: 1}',
    "val": '{dataloader: {dataset: {type: "mynet:Data"}, batch_size: 4}, step: "mynet:predict", '
    "metrics: {accuracy: accuracy}}",
    "test": '{dataloader: {dataset: {type: "mynet:Data"}, batch_size: 4}, step: "mynet:predict", '
    "metrics: {accuracy: accuracy}}",
    "optim": "{optimizer: {type: SGD, lr: 0.1}}",
    "work_dir": "runs/run",
}


def config(**changes: str | None) -> str:
    """The text of the config with other values for some keys; None leaves one out."""
    lines = {**CONFIG, **changes}
    return "".join(f"{key}: {value}\n" for key, value in lines.items() if value is not None)


def write(folder: Path, name: str, content: str | bytes) -> Path:
    """Put a file into a folder, whose own folders are made."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@cache
def trained_run() -> dict[str, bytes]:
    """The files of a finished run of the project, by name; it is trained once."""
    with TemporaryDirectory(prefix="hookline-trained-") as name:
        folder = Path(name)
        write(folder, "mynet.py", MYNET)
        write(folder, "config.yaml", config())
        code, output = command("train", "config.yaml", cwd=folder)
        assert code == 0, output
        return {file.name: file.read_bytes() for file in (folder / "runs" / "run").iterdir()}


def checkpoint() -> dict[str, Any]:
    """The checkpoint of that run, to be changed."""
    loaded: dict[str, Any] = torch.load(BytesIO(trained_run()["epoch_1.pth"]), weights_only=True)
    return loaded


def in_zip(value: Any) -> bytes:
    """As torch writes it today."""
    file = BytesIO()
    torch.save(value, file)
    return file.getvalue()


def sealed(value: dict[str, Any]) -> bytes:
    """As hookline writes it."""
    with TemporaryDirectory(prefix="hookline-sealed-") as name:
        path = Path(name, "sealed.pth")
        store.write(value, path, Note(step=2, validations=1, complete=True))
        return path.read_bytes()


def put_run(project: Path, epoch_1: bytes | None = None) -> Path:
    """Put the finished run into a project, with another `epoch_1` that the pointer knows the hash of."""
    run = project / "runs" / "run"
    for name, content in trained_run().items():
        write(run, name, content)
    if epoch_1 is not None:
        write(run, "epoch_1.pth", epoch_1)
        point(run, sha256=sha256(epoch_1).hexdigest())
    return run


def point(run: Path, **changed: Any) -> None:
    """Change entries of the pointer."""
    record = json.loads(trained_run()["last_checkpoint"]) | changed
    write(run, "last_checkpoint", json.dumps(record))

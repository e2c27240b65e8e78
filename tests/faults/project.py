"""The small project for all bad inputs: a config, a module next to it, and a finished run of it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import torch

from hookline.checkpoint.seal import Note, SealingFile
from tests.faults.children import command

MYNET = """
import os
from collections.abc import Callable
from os import system

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, hidden: int = 3):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, inputs):
        return self.layers(inputs)


class Wrap(nn.Module):
    def __init__(
        self,
        net: nn.Module | None = None,
        nets: list[nn.Module] = (),
        table: dict[str, nn.Module] | None = None,
        cfg: dict | None = None,
        call: Callable | None = None,
        more=None,
        **others,
    ):
        super().__init__()
        self.net = net or Net()

    def forward(self, inputs):
        return self.net(inputs)


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

# One line per key, so that a message about a key always names the same line.
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
    """Return the text of the config with other values for some keys; None leaves a key out."""
    lines = {**CONFIG, **changes}
    return "".join(f"{key}: {value}\n" for key, value in lines.items() if value is not None)


def write(folder: Path, name: str, content: str | bytes) -> Path:
    """Write a file in a folder, and create missing folders."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@cache
def trained_run() -> dict[str, bytes]:
    """Return the files of a finished run of the project, by name. It is trained only once."""
    with TemporaryDirectory(prefix="hookline-trained-") as name:
        folder = Path(name)
        write(folder, "mynet.py", MYNET)
        write(folder, "config.yaml", config())
        code, output = command("train", "config.yaml", cwd=folder)
        assert code == 0, output
        return {file.name: file.read_bytes() for file in (folder / "runs" / "run").iterdir()}


def checkpoint() -> dict[str, Any]:
    """Return a copy of the checkpoint of that run, which may be changed."""
    loaded: dict[str, Any] = torch.load(BytesIO(trained_run()["epoch_1.pth"]), weights_only=True)
    return loaded


def in_zip(value: Any) -> bytes:
    """Return the bytes that torch writes today."""
    file = BytesIO()
    torch.save(value, file)
    return file.getvalue()


def sealed(value: Any) -> bytes:
    """Return the bytes that hookline writes, even of a value that hookline itself would not save."""
    return with_seal(in_zip(value))


def with_seal(archive: bytes) -> bytes:
    """Return an archive with a valid seal: an attacker who can replace a checkpoint can seal it, too."""
    file = BytesIO()
    sealing = SealingFile(file)
    sealing.write(archive)
    sealing.seal(Note(step=2, validations=1, complete=True))
    return file.getvalue()


def unpacked(archive: bytes) -> dict[str, bytes]:
    """Return the records of an archive by name."""
    with ZipFile(BytesIO(archive)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def packed(records: Mapping[str, bytes] | Iterable[tuple[str, bytes]], compressed: bool = False) -> bytes:
    """Return an archive of records; several may have the same name."""
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED if compressed else ZIP_STORED) as opened, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names that occur twice
        for name, content in records.items() if isinstance(records, Mapping) else records:
            opened.writestr(name, content)
    return file.getvalue()


def put_run(project: Path, epoch_1: bytes | None = None) -> Path:
    """Copy the finished run to a project, if given with another `epoch_1` whose hash is in the pointer."""
    run = project / "runs" / "run"
    for name, content in trained_run().items():
        write(run, name, content)
    if epoch_1 is not None:
        write(run, "epoch_1.pth", epoch_1)
        point(run, sha256=sha256(epoch_1).hexdigest())
    return run


def point(run: Path, **changed: Any) -> None:
    """Change entries of the pointer file."""
    record = json.loads(trained_run()["last_checkpoint"]) | changed
    write(run, "last_checkpoint", json.dumps(record))

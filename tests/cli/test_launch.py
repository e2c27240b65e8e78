"""The checks of `hookline train --nproc N` before any process is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from hookline.cli import launch, main

CONFIG = """
model: {type: torch.nn.Linear, in_features: 4, out_features: 2}
train:
  dataloader: {dataset: {type: data.samples}, batch_size: 4}
  max_epochs: 1
  step: cross_entropy
optim: {optimizer: {type: SGD, lr: 0.1}}
device: cpu
"""
DATA = """
import os, torch
from torch.utils.data import TensorDataset

def samples(count=96):
    with open("built", "a") as file:
        file.write("x")
    return TensorDataset(torch.zeros(count, 4), torch.zeros(count).long())

def share():
    return samples(int(os.environ["NUMBER_OF_SAMPLES_OF_THIS_RANK"]))
"""


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delitem(sys.modules, "data", raising=False)
    (tmp_path / "run.yaml").write_text(CONFIG)
    (tmp_path / "data.py").write_text(DATA)


def starts(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, int]:
    """Return the exit code of the command, and how many processes it starts on this machine."""
    started = [0]

    def start(command: list[str], options: Any, *others: Any) -> int:
        started[0] += options.nproc
        return 0

    monkeypatch.setattr(launch, "run", start)
    monkeypatch.setattr(sys, "argv", ["hookline", "train", "run.yaml", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), started[0]


@pytest.mark.parametrize(("words", "message"), [
    (["--nproc", "200"],
     "200 processes cannot train together on 96 samples: start at most as many processes as there are samples"),
    (["--nproc", "50", "--nnodes", "2", "--rdzv-endpoint", "node1:29400"],
     "100 processes cannot train together on 96 samples: start at most as many processes as there are samples"),
    (["--nproc", "32", "train.dataloader.drop_last=true"],
     "32 processes cannot train together on 96 samples: with drop_last, they need 128 for one batch of 4 in each; "
     "start fewer processes, use a smaller batch_size, or leave out drop_last"),
])  # fmt: skip
def test_more_processes_than_the_samples_allow_are_refused_before_any_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert starts(monkeypatch, *words) == (2, 0)
    assert capsys.readouterr().err == f"hookline: run.yaml:4:3 train.dataloader: {message}\n"


@pytest.mark.parametrize("words", [
    ["--nproc", "96"],
    ["--nproc", "24", "train.dataloader.drop_last=true"],
    ["--nproc", "50", "--nnodes", "1:2", "--rdzv-endpoint", "node1:29400"],
    ["--nproc", "200", "train.dataloader.dataset.type=data.share"],  # only the processes can build it
])  # fmt: skip
def test_processes_that_may_have_samples_enough_are_started(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    assert starts(monkeypatch, *words) == (0, int(words[1]))


def test_the_launcher_builds_no_data_for_as_many_processes_as_the_machine_has_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert starts(monkeypatch, "--nproc", "8") == (0, 8)
    assert not Path("built").exists()
    assert starts(monkeypatch, "--nproc", "9") == (0, 9)
    assert Path("built").read_text() == "x"

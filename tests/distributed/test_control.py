"""Orders from outside, in a run of two processes: they take effect in both, at the same iteration."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hookline.rundir import control, journal
from hookline.rundir.states import state_of
from tests.distributed.processes import running
from tests.telling import telling

CONFIG = """
model: {type: torch.nn.Linear, in_features: 4, out_features: 2}
train:
  dataloader: {dataset: {type: parts.samples}, batch_size: 4}
  max_epochs: 100000
  val_interval: 100000
  step: cross_entropy
val: {dataloader: {dataset: {type: parts.samples}, batch_size: 4}, loss: cross_entropy}
optim: {optimizer: {type: SGD, lr: 0.1}}
default_hooks: {checkpoint: {interval: 100000}}
custom_hooks: [{type: parts.Tell}]
"""
PARTS = telling(samples=64, seconds=0.002)


@pytest.mark.parametrize("launcher", ["hookline", pytest.param("torchrun", marks=pytest.mark.long)])
def test_each_action_takes_effect_in_both_processes_at_the_same_iteration(tmp_path: Path, launcher: str) -> None:
    (tmp_path / "run.yaml").write_text(CONFIG)
    (tmp_path / "parts.py").write_text(PARTS)
    folder = tmp_path / "runs" / "run"
    words = {
        "hookline": (sys.executable, "-m", "hookline", "train", "run.yaml", "--nproc", "2"),
        "torchrun": (
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
            *("-m", "hookline", "train", "run.yaml"),
        ),
    }

    def answers() -> list[dict[str, Any]]:
        return [event for event in journal.read(folder) if event["kind"] == "action"]

    def has_answers(number: int) -> bool:
        return len(answers()) == number

    with running(*words[launcher], cwd=tmp_path) as run:
        run.until(lambda: any(event["kind"] == "start" for event in journal.read(folder)))
        assert state_of(folder).name == "running"
        for number, action in enumerate(("save", "validate", "stop_after_epoch"), 1):
            control.ask(folder, action, "me")
            run.until(partial(has_answers, number))
        assert run.wait() == 0, run.output()
    saved, validated, stopped = answers()
    assert [(each["name"], each["state"], each["reason"]) for each in answers()] == [
        *(("save", "done", ""), ("validate", "done", ""), ("stop_after_epoch", "done", ""))
    ]
    assert (folder / saved["file"]).is_file()
    told = [(tmp_path / f"rank_{rank}.txt").read_text().splitlines() for rank in (0, 1)]
    assert told[0] == told[1] == [f"validated {validated['step']}", f"ended {stopped['step']}"]
    assert stopped["step"] % 8 == 0, "at the end of an epoch"
    (start,) = [event for event in journal.read(folder) if event["kind"] == "start"]
    assert start["processes"] == 2
    state = state_of(folder)
    assert (state.name, state.text) == ("stopped", "stopped: asked to stop after this epoch by me")
    assert json.loads((folder / "events.jsonl").read_text().splitlines()[-1])["kind"] == "end"
    assert not (folder / control.NAME).exists()

"""Triage: the step, the pass, the module and the samples with which NaN or Inf began."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hookline.errors import HooklineError
from hookline.lifecycle import rerun
from hookline.replay import triage
from hookline.replay.preparation import UNKNOWN, Task
from hookline.replay.rerun import ReplayOver, Rerun, activated
from hookline.rundir import capsule
from tests.faults import nans, planted


def repeat_here(task: Task, scratch: Path, watchers: Any, options: dict[str, Any]) -> None:
    """Repeat the steps in this process, from the start."""
    again = Rerun(task.folder, scratch, None, task.last, fails=True, watchers=list(watchers))
    with activated(again, task.folder), pytest.raises(ReplayOver):
        nans.train(options)
    assert rerun.active is None


def find(options: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what a triage finds, without starting processes."""
    monkeypatch.setattr(triage, "in_a_process", lambda function: function())
    monkeypatch.chdir(folder)
    with pytest.raises(HooklineError):
        nans.train(options)
    failure = capsule.read(folder / "run" / "capsule.json")
    task = Task(folder / "run", None, 0, failure.step, failure.data["position"]["iter"] + 1, failure, 1, UNKNOWN, None)
    return triage.triage(task, partial(repeat_here, options=options)).as_data()


def test_steps_that_a_scaler_skips_are_listed_and_are_no_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"precision": "fp16", "step": "large"}
    monkeypatch.setattr(triage, "in_a_process", lambda function: function())
    monkeypatch.chdir(tmp_path)
    task = Task(tmp_path / "run", None, 0, 1, 8, None, 1, UNKNOWN, None)
    verdict = triage.triage(task, partial(repeat_here, options=options))
    assert (verdict.finding, verdict.sentence) == (None, "no NaN or Inf was found in steps 1 to 8")
    found = find({**options, "data": "nan", "checked": "raise"}, tmp_path, monkeypatch)
    assert found["overflows"] == list(range(1, len(found["overflows"]) + 1)) != []


@pytest.mark.parametrize("cause", planted.PLANTED, ids=lambda cause: cause.name)
def test_a_planted_cause_is_found(cause: planted.Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find(cause.options, tmp_path, monkeypatch)
    assert planted.problems(cause, found) == "", json.dumps(found, indent=1)

"""The command and the environment of a trial, and what the end of its process means."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hookline.common import launched
from hookline.sweeps.joining import TRIAL, current_trial
from hookline.sweeps.trials import Job, command, environment, find_error
from hookline.testing import toy_runner
from tests.sweeps.fakes import Runs, request, write_config

if TYPE_CHECKING:
    from hookline.sweeps.studies import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    config = write_config(tmp_path, "sweep: {space: {model.width: [2, 4]}}\n")
    words = ("optim.optimizer.lr=0.01..1.0:log", "train.max_epochs=3")
    return Runs(request(Path(config.name), *words, trials=4, allow=("pkg",), jobs=2)).settings


def words_of(settings: Settings, *, resume: bool = False) -> list[str]:
    job = Job(3, {"model.width": 4, "optim.optimizer.lr": 0.1}, Path("runs/tiny-sweep/3"), resume)
    return command(settings, job)


def test_a_trial_is_a_training_with_its_values_as_overrides(settings: Settings) -> None:
    words = words_of(settings)
    assert [words[0], *words[words.index("-m") :]] == [
        *(sys.executable, "-m", "hookline", "train", "--allow", "pkg", "--", "tiny.yaml", "train.max_epochs=3"),
        *("model.width=4", "optim.optimizer.lr=0.1", 'work_dir="runs/tiny-sweep/3"', "sweep=null"),
    ]
    assert "--resume" not in words
    assert words_of(settings, resume=True)[words.index("train") + 1] == "--resume"


def test_its_environment_names_the_trial_and_the_sweep(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 9)
    own = environment(settings, Job(3, {}, Path("x")))
    assert own[launched.LAUNCHER] == str(os.getpid())
    assert own[launched.GRACE] == "60.0"
    assert own["OMP_NUM_THREADS"] == "4"
    monkeypatch.setenv(TRIAL, own[TRIAL])
    trial = current_trial()
    assert trial.parameters == json.loads(own[TRIAL])
    assert trial.parameters == {
        "study": "tiny-sweep",
        "storage": "journal:study.log",
        "trial": 3,
        "monitor": "accuracy",
        "rule": "greater",
        "pruner": "median",
    }
    assert trial.changes == {"experiment_name": "tiny-sweep-3"}
    assert TRIAL not in os.environ, "processes of the run are no trials"


def test_without_a_sweep_a_run_joins_nothing() -> None:
    trial, runner = current_trial(), toy_runner(max_epochs=1)
    trial.join(runner)
    assert (bool(trial), trial.changes, trial.was_pruned(runner)) == (False, {}, False)
    assert "PruningHook" not in [entry.name for entry in runner.plan]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("epoch 1\nhookline: the loss is NaN\n", "the loss is NaN"),
        ("hookline: x.yaml: 1 error\n  x.yaml:3:1  seed: bad\n", "x.yaml: 1 error x.yaml:3:1  seed: bad"),
        ("Traceback (most recent call last):\n  File\n    x\nValueError: no\nin hook X\n", "ValueError: no"),
        ("hookline: a note\nTraceback (most recent call last):\n  File\nKeyError: 1\n", "KeyError: 1"),
        ("Segmentation fault\n\n", "Segmentation fault"),
        ("", ""),
    ],
)
def test_the_reason_of_a_failure_is_the_last_error(output: str, expected: str) -> None:
    assert find_error(output.splitlines()) == expected

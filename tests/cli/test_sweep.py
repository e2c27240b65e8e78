"""`hookline sweep`: its lines, its table, its exit codes. The trials are not run."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hookline.cli.app import app
from hookline.cli.sweep_screen import short_names
from hookline.errors import HooklineError
from hookline.hooks.pruning import PRUNED
from hookline.sweeps import sweep
from tests.sweeps.fakes import End, FakeProcess, Starter, write_config

LR = "optim.optimizer.lr=0.25,0.5,0.75"
COMMON = ["--storage", "journal:study.log", "--sampler", "grid"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep, "PERIOD", 0.0)
    monkeypatch.setenv("COLUMNS", "100")
    write_config(tmp_path)


def run(monkeypatch: pytest.MonkeyPatch, ends: Any, *words: str) -> Any:
    starter = Starter(ends)
    real = sweep.Sweep.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        real(self, *args, **{**options, "started": starter})

    arguments = ["sweep", "tiny.yaml", LR, *COMMON, *words]
    with monkeypatch.context() as patched:
        patched.setattr(sweep.Sweep, "__init__", init)
        patched.setattr(sys, "argv", ["hookline", *arguments])
        return CliRunner().invoke(app, arguments)


def without_times(text: str) -> list[str]:
    lines = [re.sub(r"[0-9.e+-]+s\b", "TIME", line).rstrip() for line in text.splitlines()]
    return [re.sub(r" +", " ", line).strip() for line in lines if line.strip(" ─")]


def test_a_line_per_trial_a_table_and_the_best_config(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {0: End(values=(0.5,)), 1: End(4, (), None, "hookline: NaN"), 2: End(values=(0.4,), end=PRUNED)}
    found = run(monkeypatch, lambda job, _: ends[job.number])
    assert found.exit_code == 0, found.output
    assert without_times(found.stdout) == [
        "tiny-sweep: 3 trials to maximize val/accuracy, sampler grid, pruner median, in runs/tiny-sweep, study in "
        "journal:study.log",
        "optim.optimizer.lr: 0.25,0.5,0.75",
        "trial 0: val/accuracy 0.5000, with optim.optimizer.lr=0.25 (runs/tiny-sweep/0)",
        "trial 1: failed (exit code 4): NaN, with optim.optimizer.lr=0.5 (runs/tiny-sweep/1)",
        "trial 2: pruned, val/accuracy 0.4000, with optim.optimizer.lr=0.75 (runs/tiny-sweep/2)",
        "trial val/accuracy lr state time folder",
        "0 0.5000 0.25 complete TIME runs/tiny-sweep/0",
        "2 0.4000 0.75 pruned TIME runs/tiny-sweep/2",
        "1 - 0.5 failed TIME runs/tiny-sweep/1",
        "best config: hookline train runs/tiny-sweep/best.yaml",
    ]
    assert Path("runs/tiny-sweep/best.yaml").exists()


def test_a_finished_sweep_shows_its_table_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(monkeypatch, lambda job, _: End(values=(0.5,)))
    again = run(monkeypatch, lambda job, _: pytest.fail("a trial was started"))
    assert again.exit_code == 0
    lines = without_times(again.stdout)
    assert lines[2] == "continuing: 3 of 3 trials are finished"
    assert lines[3:] == without_times(first.stdout)[5:]


def test_json_is_all_that_is_printed_to_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(monkeypatch, lambda job, _: End(values=(0.5,)), "--json", "--trials", "1")
    data = json.loads(found.stdout)
    assert data["best_config"] == "runs/tiny-sweep/best.yaml"
    assert [(each["number"], each["params"]) for each in data["trials"]] == [(0, {"optim.optimizer.lr": 0.25})]
    assert "trial 0: val/accuracy 0.5000" in found.stderr


def test_the_exit_code_if_no_trial_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(monkeypatch, lambda job, _: End(3, (), None, "hookline: no data"), "--trials", "2")
    assert found.exit_code == 3
    assert not Path("runs/tiny-sweep/best.yaml").exists()


def test_the_same_failure_three_times_is_the_error_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(monkeypatch, lambda job, _: End(3, (), None, "hookline: no data"))
    assert isinstance(found.exception, HooklineError)
    assert found.exception.exit_code == 3
    assert str(found.exception).startswith("the first 3 trials failed in the same way, so the sweep ends. Trial 2")


@pytest.mark.parametrize(
    ("number", "code", "saved", "line"),
    [
        (signal.SIGINT, 130, True, "trial 0: saved, to be continued"),
        (signal.SIGTERM, 143, False, "trial 0: nothing saved, to be repeated"),
    ],
)
def test_after_a_signal_the_last_line_says_how_to_continue(
    monkeypatch: pytest.MonkeyPatch, number: int, code: int, saved: bool, line: str
) -> None:
    def ends(job: Any, labels: Any) -> FakeProcess:
        job.folder.mkdir(parents=True, exist_ok=True)
        (job.folder / ("iter_3.pth" if saved else "run.log")).touch()
        os.kill(os.getpid(), number)
        return FakeProcess(End(), waits=True)

    found = run(monkeypatch, ends)
    assert found.exit_code == code
    assert found.stdout.splitlines()[-1] == (
        f"interrupted; continue with: hookline sweep tiny.yaml {LR} --storage journal:study.log --sampler grid"
    )
    assert line in found.stdout


def test_trials_of_another_machine_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(job: Any, labels: Any) -> FakeProcess:
        os.kill(os.getpid(), signal.SIGTERM)
        return FakeProcess(End(), waits=True)

    run(monkeypatch, interrupt, "--dir", "there")
    found = run(monkeypatch, lambda job, _: End(values=(0.5,)), "--dir", "here")
    assert (
        "unfinished trials that were started in another folder, maybe on another machine: 0; the same command "
        "continues them there"
    ) in found.stdout


def test_only_the_best_twenty_are_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(monkeypatch, lambda job, _: End(values=(0.5,)), "model.width=1..8", "--trials", "22")
    assert "2 more trials: add --json for all of them" in found.stdout


def test_names_are_short_but_different() -> None:
    assert short_names(["optim.optimizer.lr", "model.width"]) == ["lr", "width"]
    assert short_names(["a.lr", "b.lr", "lr"]) == ["a.lr", "b.lr", "lr"]


def test_help_needs_neither_torch_nor_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "optuna"]:
        monkeypatch.delitem(sys.modules, name)
    found = CliRunner().invoke(app, ["sweep", "--help"])
    assert found.exit_code == 0
    assert "1e-4..1e-1:log" in found.output
    assert not any(name.partition(".")[0] == "optuna" for name in sys.modules)

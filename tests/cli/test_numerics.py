"""After a training has ended because of NaN or Inf, the command finds out where it began."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hookline.cli import errors, numerics
from hookline.errors import NumericsError
from hookline.rundir import capsule
from tests.faults import children, nans

CONFIG = """
model: {type: "tests.faults.nans:Net", way: log}
train:
  dataloader: {dataset: {type: "tests.faults.nans:Data"}, batch_size: 4, shuffle: true}
  step: "tests.faults.nans:plain"
  max_epochs: 2
optim: {optimizer: {type: SGD, lr: 0.01}}
device: cpu
seed: 5
work_dir: run
"""


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run that failed because of a NaN."""
    folder = tmp_path_factory.mktemp("failed") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["__main__"], "__file__", "train.py", raising=False)  # pytest's workers have no script
        with pytest.raises(NumericsError) as caught:
            nans.runner_of({"way": "log"}, folder).train()
    hint = f"to find the step, the module and the samples: hookline replay {folder} --triage"
    assert caught.value.__notes__[-1] == hint
    return folder


def called(monkeypatch: pytest.MonkeyPatch, outcome: Any) -> list[list[str]]:
    """Let the command that would be started have an outcome, and return the list of commands."""
    commands = []

    def run(command: list[str], **options: Any) -> Any:
        assert options["timeout"] == 60
        commands.append(command)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def done(code: int) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], code, "it began in step 7\n")


def test_the_answer_is_shown_after_the_error(
    failed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = called(monkeypatch, done(0))
    errors.forget_options()
    errors.after_the_error(lambda: numerics.find_origin(failed, 0.01, ("mynet",)))
    errors.show_error(NumericsError("the loss has become nan"))
    words = ["replay", str(failed), "--triage", "--allow", "mynet"]
    assert commands == [[sys.executable, "-m", "hookline", *words]]
    assert capsys.readouterr().err == (
        "hookline: the loss has become nan\n"
        "finding out where this began, which takes a minute at most; Ctrl-C ends it\n"
        "it began in step 7\n"
    )
    errors.forget_options()
    errors.show_error(NumericsError("another command"))
    assert capsys.readouterr().err == "hookline: another command\n"


@pytest.mark.parametrize(
    "outcome", [done(1), subprocess.TimeoutExpired("x", 60), KeyboardInterrupt(), OSError("no memory")], ids=repr
)
def test_without_an_answer_the_error_stays_the_last_word(
    failed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], outcome: Any
) -> None:
    called(monkeypatch, outcome)
    numerics.find_origin(failed, 0.01, ())
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(("seconds", "starts"), [(2.4, 1), (2.6, 0)])
def test_steps_that_would_take_more_than_a_minute_are_not_repeated(
    failed: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, starts: int
) -> None:
    assert capsule.read(failed / "capsule.json").data["position"]["iter"] == 7  # so 8 steps are repeated, 3 times
    commands = called(monkeypatch, done(0))
    numerics.find_origin(failed, seconds, ())
    assert len(commands) == starts


def test_a_run_without_a_capsule_has_nothing_to_repeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = called(monkeypatch, done(0))
    numerics.find_origin(tmp_path, 0.01, ())
    assert commands == []


def test_the_answer_goes_with_the_failure(failed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(failed, folder)
    data = dict(capsule.read(folder / "capsule.json").data)
    (folder / capsule.TRIAGE).write_text("{}")
    capsule.forget(folder, passed=6)
    assert (folder / capsule.TRIAGE).exists()
    capsule.write(folder, data)
    assert not (folder / capsule.TRIAGE).exists()
    (folder / capsule.TRIAGE).write_text("{}")
    capsule.forget(folder, passed=7)
    assert not (folder / capsule.TRIAGE).exists()


@pytest.mark.processes
def test_train_finds_out_by_itself_and_changes_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG, encoding="utf-8")
    root = str(Path(__file__).parents[2])  # the project of this test is the package of tests
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": root}
    allowed = ("--allow", "tests.faults.nans")
    code, printed = children.command("train", "c.yaml", *allowed, cwd=tmp_path, timeout=120, environment=environment)
    assert (code, "module 'cause' (Cause) made Inf for sample 29" in printed) == (4, True), printed
    assert json.loads((tmp_path / "run" / "triage.json").read_text())["ids"] == [nans.SAMPLE]
    contents = {path: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.name != "triage.json"}
    assert (
        children.command("replay", "run", "--triage", *allowed, cwd=tmp_path, timeout=120, environment=environment)[0]
        == 0
    )
    assert {path: path.read_bytes() for path in contents} == contents

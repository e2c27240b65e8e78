"""Where two runs part, by their records, and by running the steps of both again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from hookline import Hook, Runner
from hookline.errors import ConfigError
from hookline.replay.difference import diff
from hookline.report.gather import gather
from hookline.rundir import parting
from hookline.testing import toy_runner
from tests.faults import children, differences


class Changes(Hook):
    """Changes one bit in step 6."""

    def after_train_iter(self, runner: Runner) -> None:
        if runner.iter == 5:
            with torch.no_grad():
                runner.model[0].weight.view(torch.int32)[0, 0] ^= 1  # type: ignore[index]  # a Sequential


class Scales(Hook):
    """Changes the weights in step 6."""

    def after_train_iter(self, runner: Runner) -> None:
        if runner.iter == 5:
            with torch.no_grad():
                runner.model[0].weight.mul_(2)  # type: ignore[index]  # a Sequential


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with four runs of 8 steps and two epochs."""
    folder = tmp_path_factory.mktemp("runs")
    for name, hooks in (("a", []), ("same", []), ("bit", [Changes()]), ("loss", [Scales()])):
        toy_runner(work_dir=folder / name, custom_hooks=hooks).train()
    return folder


def test_equal_runs_are_equal_until_their_end(runs: Path) -> None:
    found = parting.find(runs / "a", runs / "same")
    assert found.line == "equal to the bit until step 8, as far as the records show: 8 losses, 2 checkpoints"
    assert (found.differs_at, found.bases) == (None, (runs / "a" / "epoch_2.pth", runs / "same" / "epoch_2.pth"))


def test_a_bit_that_no_loss_shows_is_in_the_checkpoint(runs: Path) -> None:
    found = parting.find(runs / "a", runs / "bit")
    assert found.line == (
        "equal to the bit until step 4, as far as the records show; state_dict/0.weight of epoch_2.pth differs"
    )
    assert (found.differs_at, found.base_step, found.compared) == (8, 4, (8, 2))


def test_the_first_loss_that_differs_comes_before_later_checkpoints(runs: Path) -> None:
    found = parting.find(runs / "a", runs / "loss")
    assert found.line.startswith(
        "equal to the bit until step 6, as far as the records show; the loss of step 7 differs: "
    )
    assert (found.differs_at, found.base_step) == (7, 4)


def test_the_report_shows_the_same_line(runs: Path) -> None:
    found = gather(runs / "a", runs / "loss", runs / "bit")["comparison"]["losses"]
    assert [each["bits"] for each in found] == [parting.find(runs / "a", runs / name).line for name in ("loss", "bit")]


def test_runs_without_records_are_not_said_to_be_equal(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.log").touch()
    line = "the runs have no records in common that could be compared bit by bit"
    assert parting.find(tmp_path / "a", tmp_path / "b").line == line
    with pytest.raises(ConfigError, match=f"cannot be compared: {line}; choose --steps$"):
        diff(tmp_path / "a", tmp_path / "b", lambda *_: None, tmp_path)


QUICK = [case for case in differences.CASES if case.name in ("gradient", "unused parameter", "a rate in the config")]


@pytest.mark.processes
def test_the_first_difference_is_named(tmp_path: Path) -> None:
    differences.train(tmp_path, "run")
    assert [differences.find(tmp_path, case) for case in QUICK] == ["", "", ""]
    code, printed = children.command("diff", "run", "other", cwd=tmp_path)
    lines = printed.splitlines()
    assert (code, lines[0]) == (1, "equal to the bit until step 0")
    assert lines[2] == "config optim.optimizer.lr: 0.01, 0.0100000001"
    assert lines[-1].startswith("first difference: step 1, learning rate before the step group 0 lr; then: ")
    for name in ("run", "other"):
        words = ["replay", name, "--steps", "1..2", "--trail", f"{name}.trail"]
        assert children.command(*words, cwd=tmp_path)[0] == 0
    assert children.command("diff", "run.trail", "other.trail", cwd=tmp_path) == (1, lines[-1] + "\n")
    assert children.command("diff", "run.trail", "run.trail", cwd=tmp_path) == (0, "equal to the bit\n")


@pytest.mark.processes
def test_equal_runs_need_no_replay_unless_steps_are_chosen(tmp_path: Path) -> None:
    differences.train(tmp_path, "run")
    differences.train(tmp_path, "same")
    line = "equal to the bit until step 12, as far as the records show: 12 losses, 3 checkpoints\n"
    assert children.command("diff", "run", "same", cwd=tmp_path) == (0, line)
    code, printed = children.command("diff", "run", "same", "--steps", "5..6", "--json", cwd=tmp_path)
    found = json.loads(printed)
    assert (code, found["equal"], found["first"]) == (0, True, None)
    assert [side["steps"] for side in found["replayed"]] == [[5, 6], [5, 6]]


def test_runs_that_cannot_be_compared_are_refused(runs: Path, tmp_path: Path) -> None:
    code, printed = children.command("diff", str(runs / "a"), "nothing", cwd=tmp_path)
    assert (code, printed) == (2, "hookline: folder nothing does not exist\n")
    (tmp_path / "x.trail").write_text("{}")
    code, printed = children.command("diff", "x.trail", "x.trail", cwd=tmp_path)
    assert (code, printed.startswith("hookline: x.trail is not a trail")) == (5, True)

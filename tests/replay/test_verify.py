"""Observers that change a training are named, with the point, the step and what they changed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hookline.config import load
from hookline.replay import trail, verification
from hookline.replay.verification import Training, Verification, train
from tests.faults import children
from tests.replay import meddlers


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder whose modules can be imported, and in which trainings run without processes of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(verification, "in_a_process", lambda function: function())
    yield tmp_path
    sys.modules.pop("project", None)


def verify(folder: Path, *hooks: str, **options: Any) -> Verification:
    return verification.verify(load(meddlers.write(folder, *hooks, **options)), 8)


def test_every_meddler_is_named_with_the_point_the_step_and_the_change(project: Path) -> None:
    """They all meddle in one training here; `make faults` lets each of them do so alone."""
    folder = project / "scratch"
    folder.mkdir()
    loaded = load(meddlers.write(project, "Actor", *meddlers.MEDDLERS))
    changes = train(Training(loaded, (), 8, folder, probed=True)).changes
    firsts = {each.hook: next(iter(each.names.items())) for each in changes}
    assert {each.hook: (each.point.partition(" (")[0], each.step) for each in changes} == {
        hook: (point, step) for hook, (point, step, *_) in meddlers.MEDDLERS.items()
    }
    assert {hook: (kind, names[0]) for hook, (kind, names) in firsts.items()} == {
        hook: (kind, name) for hook, (*_, kind, name) in meddlers.MEDDLERS.items()
    }
    assert {each.where.rpartition(":")[0].rpartition("/")[2] for each in changes} == {"project.py"}


def test_a_training_is_compared_without_its_observers_and_with_them(project: Path) -> None:
    found = verify(project, "Actor", "Weights")
    assert found.lines() == [
        "the observers change the training from step 3: parameter first.weight",
        f"  Weights at after_train_iter, step 3 ({found.changes[0].where}), changes: parameter first.weight",
    ]
    assert (found.unstable, found.alone, found.lost) == (False, [], [])


def test_observers_that_only_look_are_not_blamed(project: Path) -> None:
    found = verify(project, "Actor")
    assert found.lines() == ["9 steps are equal to the bit with and without observers (LoggerHook, ReportHook)"]


def test_a_hook_that_acts_outside_of_its_calls_is_found_alone(project: Path) -> None:
    found = verify(project, "Modules")
    assert found.changes == []
    assert found.lines()[1:] == [
        "  Modules alone makes a difference, from step 4: module output first and 4 more, outside of its calls"
    ]


def test_a_change_in_a_validation_is_found(project: Path) -> None:
    (change,) = verify(project, "Evaluates").changes
    assert (change.hook, change.point, change.step) == ("Evaluates", "after_val_epoch", 4)
    assert change.names == {"buffer": ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]}


def test_an_attribute_that_a_resume_loses_is_named(project: Path) -> None:
    found = verify(project, "Forgets")
    assert found.lost == ["Forgets.seen"]
    assert found.lines()[1:] == ["note: Forgets.seen changes during the run, and a resume does not restore it"]


def test_a_training_that_differs_in_any_case_blames_nobody(project: Path) -> None:
    found = verify(project, "Weights", step="noisy")
    assert (found.unstable, found.changes, found.alone) == (True, [], [])
    assert found.lines()[0] == "two trainings without observers differ from step 1: the loss"


def test_a_measured_time_in_the_state_of_a_hook_is_no_difference(project: Path) -> None:
    assert verify(project, "Clock").difference is None
    (change,) = verify(project, "Clock", "Weights").changes
    assert change.hook == "Weights"


def test_the_first_difference_of_two_trails_is_named_in_the_order_of_a_step() -> None:
    one = {(1, 0): {"batch": {"0": "a"}, "gradient": {"w": "b", "v": "c"}}}
    other = {(1, 0): {"batch": {"0": "a"}, "gradient": {"w": "x", "v": "y"}}}
    assert trail.first_difference(one, one) is None
    assert str(trail.first_difference(one, other)) == "gradient w and 1 more"


@pytest.mark.processes
def test_the_command_ends_with_1_if_an_observer_meddles(tmp_path: Path) -> None:
    meddlers.write(tmp_path, "Rate")
    code, printed = children.command("verify", "config.yaml", "--steps", "4", cwd=tmp_path)
    assert (code, "Rate at before_train_iter, step 3" in printed) == (1, True), printed

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hookline.common import launched


@pytest.fixture(autouse=True)
def _without_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (launched.LAUNCHER, launched.STARTED, launched.RESUME, launched.ERROR_FILE, launched.RESTART_COUNT):
        monkeypatch.delenv(name, raising=False)


def test_without_a_launcher_nothing_happens() -> None:
    launched.end_with_parent()
    launched.mark_started()
    launched.mark_ended()
    launched.unmark_started()
    assert (launched.is_launched(), launched.must_resume(), launched.record("error")) == (False, False, False)


def test_the_mark_says_whether_training_began_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "started"
    monkeypatch.setenv(launched.STARTED, str(mark))
    launched.mark_started()
    assert mark.read_text() == "training"
    launched.mark_ended()
    assert mark.read_text() == "ended"
    launched.unmark_started()
    assert not mark.exists()


@pytest.mark.parametrize(
    ("resume", "count", "expected"), [("", "0", False), ("", "2", True), ("0", "2", False), ("1", "0", True)]
)
def test_a_process_resumes_if_the_one_that_it_replaces_was_training(
    resume: str, count: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(launched.RESUME, resume)
    monkeypatch.setenv(launched.RESTART_COUNT, count)
    assert launched.must_resume() is expected


def test_an_error_is_left_where_torchrun_looks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "error.json"
    monkeypatch.setenv(launched.ERROR_FILE, str(file))
    assert launched.record("no luck") is False  # so that this process shows it as well
    found = json.loads(file.read_text())["message"]
    assert (found["message"], found["extraInfo"]["py_callstack"]) == ("no luck", "no luck")
    monkeypatch.setattr(launched, "_launcher", 1)
    assert launched.record("no luck") is True
    monkeypatch.setenv(launched.ERROR_FILE, str(tmp_path / "missing" / "error.json"))
    assert launched.record("no luck") is False

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hookline import Hook, Runner
from hookline.hooks import ReportHook
from hookline.report import page
from hookline.testing import toy_runner


def data_of(folder: Path) -> dict[str, Any]:
    text = (folder / "report.html").read_text()
    ((found),) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    data: dict[str, Any] = json.loads(found)["runs"][0]
    return data


def test_every_run_leaves_a_report_of_everything_it_wrote(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path)
    runner.train()
    first = data_of(tmp_path)
    assert (first["status"], first["steps"], first["hooks"]["steps"]) == ("finished", 8, 8)
    assert "test/accuracy" not in {each["name"] for each in first["metrics"]}
    runner.test()
    assert "test/accuracy" in {each["name"] for each in data_of(tmp_path)["metrics"]}


def test_it_can_be_left_out(tmp_path: Path) -> None:
    toy_runner(work_dir=tmp_path, default_hooks={"report": None}).train()
    assert not (tmp_path / "report.html").exists()


def test_a_run_that_fails_leaves_a_report_with_the_reason(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path)

    @runner.on("after_train_iter")
    def fail(runner: Runner) -> None:
        if runner.iter == 5:
            raise ZeroDivisionError("planted")

    with pytest.raises(ZeroDivisionError):
        runner.train()
    found = data_of(tmp_path)
    assert found["status"] == "failed"
    assert "planted" in found["verdict"]["evidence"][0]


def test_a_failure_of_the_report_is_only_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> str:
        raise ValueError("planted")

    monkeypatch.setattr(page, "make_page", fail)
    toy_runner(work_dir=tmp_path).train()
    assert not (tmp_path / "report.html").exists()
    assert (tmp_path / "run.log").read_text().endswith("warning: ReportHook: ValueError: planted\n")


def test_long_records_are_left_to_the_command(tmp_path: Path) -> None:
    toy_runner(work_dir=tmp_path, default_hooks={"report": ReportHook(max_mb=0)}).train()
    assert not (tmp_path / "report.html").exists()
    assert f"to write it, use: hookline report {tmp_path}\n" in (tmp_path / "run.log").read_text()


def test_the_report_of_an_earlier_run_is_archived(tmp_path: Path) -> None:
    toy_runner(work_dir=tmp_path).train()
    toy_runner(work_dir=tmp_path, default_hooks={"report": None}).train()
    assert (tmp_path / "old-1" / "report.html").exists()
    assert not (tmp_path / "report.html").exists()


class Looks(Hook):
    def __init__(self, ranks: Any = "all") -> None:
        self.ranks = ranks
        self.seen: list[str] = []

    def when_closed(self, runner: Runner) -> None:
        self.seen.append((runner.work_dir / "events.jsonl").read_text().splitlines()[-1])


def test_any_hook_can_look_at_a_run_that_has_ended(tmp_path: Path) -> None:
    hook = Looks()
    toy_runner(work_dir=tmp_path, custom_hooks=[hook]).train()
    ((seen),) = hook.seen
    assert json.loads(seen)["kind"] == "end"


def test_a_run_that_is_refused_before_it_has_its_folder_calls_nobody(tmp_path: Path) -> None:
    hook = Looks()
    (tmp_path / "plan.txt").mkdir()
    with pytest.raises(Exception, match="plan.txt"):
        toy_runner(work_dir=tmp_path, custom_hooks=[hook]).train()
    assert hook.seen == []

"""The state of a run: running, finished, stopped, failed, killed, or unknown."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hookline.rundir import journal, ownership
from hookline.rundir.states import quiet_for, state_of
from hookline.testing import toy_runner

START = {"kind": "start", "environment": {"host": "here"}}


def write(folder: Path, *events: dict[str, Any]) -> Path:
    lines = [json.dumps({"time": 10.0 + n, "step": n, "epoch": 0, **event}) for n, event in enumerate(events)]
    (folder / journal.NAME).write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize(
    ("events", "name", "text", "code"),
    [
        ([START, {"kind": "end", "code": 0}], "finished", "finished", 0),
        (
            [START, {"kind": "stop", "reason": "enough", "by": "Early"}, {"kind": "end", "code": 0}],
            "stopped",
            "stopped by Early: enough",
            0,
        ),
        (
            [START, {"kind": "signal", "name": "SIGTERM"}, {"kind": "end", "code": 143}],
            "stopped",
            "ended by SIGTERM",
            143,
        ),
        ([START, {"kind": "end", "code": 130}], "stopped", "ended by signal 2", 130),
        ([START, {"kind": "end", "code": 9}], "failed", "ended with exit code 9", 9),
        ([START, {"kind": "failure", "text": "Error: x\n  y"}, {"kind": "end", "code": 1}], "failed", "Error: x", 1),
        ([START, {"kind": "failure", "text": "x"}, START, {"kind": "end", "code": 0}], "finished", "finished", 0),
        (
            [START, {"kind": "end", "code": 0}, START, {"kind": "save"}],
            "killed",
            "its process disappeared; its last event is at step 3",
            None,
        ),
        ([], "unknown", "the run has no journal", None),
    ],
)  # fmt: skip
def test_the_last_session_of_the_journal_decides(
    tmp_path: Path, events: Sequence[dict[str, Any]], name: str, text: str, code: int | None
) -> None:
    state = state_of(write(tmp_path, *events))
    assert (state.name, state.text, state.code) == (name, text, code)


def test_a_run_is_running_while_it_holds_its_lock(tmp_path: Path) -> None:
    seen = []
    runner = toy_runner(work_dir=tmp_path, val=None, max_epochs=1)
    runner.on("before_train_iter")(lambda runner: seen.append(state_of(tmp_path)))
    runner.train()
    assert {(state.name, state.pid, state.host) for state in seen} == {("running", os.getpid(), os.uname().nodename)}
    ended = state_of(tmp_path)
    assert (ended.name, ended.step, ended.epoch, ended.pid) == ("finished", 4, 1, None)
    assert ended.started is not None
    assert ended.written is not None
    assert quiet_for(ended, ended.written + 5) == 5


def test_a_run_on_another_machine_is_unknown_with_what_is_known(tmp_path: Path) -> None:
    write(tmp_path, START, {"kind": "save"})
    (tmp_path / ownership.LOCK).write_text(json.dumps({"pid": 5, "host": "elsewhere", "since": "today"}))
    state = state_of(tmp_path)
    assert (state.name, state.host, state.pid, state.step) == ("unknown", "elsewhere", 5, 1)
    assert state.text == "it was started on another machine, and may be running there"

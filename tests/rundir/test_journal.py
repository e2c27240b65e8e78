"""The journal of a run: what happened, in order, with the step of each event."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import hookline
from hookline.errors import StorageError
from hookline.rundir import journal, states
from hookline.testing import toy_runner


def told(folder: Path) -> list[tuple[Any, ...]]:
    """Return the events without times, and without what is recorded about the surroundings of a run."""
    left_out = ("time", "environment", "origin", "sources", "config", "data", "kind", "step", "epoch", "id")
    return [
        (event["kind"], event["step"], event["epoch"], {key: event[key] for key in event if key not in left_out})
        for event in journal.read(folder)
    ]


def test_a_run_tells_its_start_its_saves_its_validations_and_its_end(tmp_path: Path) -> None:
    toy_runner(max_epochs=2, work_dir=tmp_path, default_hooks={"checkpoint": {"save_best": "accuracy"}}).train()
    assert told(tmp_path) == [
        ("start", 0, 0, {"resumed_from": None, "processes": 1}),
        ("save", 4, 1, {"file": "epoch_1.pth", "best": None, "complete": True}),
        ("validation", 4, 1, {}),
        ("save", 4, 1, {"file": "best_accuracy_epoch_1.pth", "best": "accuracy", "complete": True}),
        ("save", 8, 2, {"file": "epoch_2.pth", "best": None, "complete": True}),
        ("validation", 8, 2, {}),
        ("end", 8, 2, {"code": 0}),
    ]
    environment = journal.read(tmp_path)[0]["environment"]
    assert list(environment) == ["hookline", "torch", "python", "threads", "platform", "host", "device"]
    assert (environment["hookline"], environment["host"]) == (hookline.__version__, os.uname().nodename)
    data = journal.read(tmp_path)[0]["data"]
    assert (list(data), data["type"], data["samples"]) == (
        ["type", "samples", "hash", "batches"],
        "list",
        data["batches"],
    )
    origin = journal.read(tmp_path)[0]["origin"]
    assert list(origin) == ["kind", "file", "folder", "words", "starts_itself"]
    assert (origin["folder"], origin["words"]) == (os.getcwd(), sys.argv)


def test_a_resumed_run_appends_and_a_fresh_one_archives_the_journal(tmp_path: Path) -> None:
    toy_runner(max_epochs=1, work_dir=tmp_path, val=None).train()
    toy_runner(max_epochs=2, work_dir=tmp_path, val=None, resume=True).train()
    first = [
        ("start", 0, 0, {"resumed_from": None, "processes": 1}),
        ("save", 4, 1, {"file": "epoch_1.pth", "best": None, "complete": True}),
        ("end", 4, 1, {"code": 0}),
    ]
    second = [
        ("start", 4, 1, {"resumed_from": f"{tmp_path}/epoch_1.pth", "processes": 1}),
        ("save", 8, 2, {"file": "epoch_2.pth", "best": None, "complete": True}),
        ("end", 8, 2, {"code": 0}),
    ]
    assert told(tmp_path) == first + second
    assert [event["kind"] for event in journal.last_session(journal.read(tmp_path))] == ["start", "save", "end"]
    toy_runner(max_epochs=1, work_dir=tmp_path, val=None).train()
    assert told(tmp_path) == first
    assert told(tmp_path / "old-1") == first + second


def test_stops_warnings_failures_and_signals_are_told_with_their_step(tmp_path: Path) -> None:
    stopped = toy_runner(work_dir=tmp_path / "stop", val=None, default_hooks={"checkpoint": None})
    stopped.on("after_train_iter")(lambda runner: runner.stop("enough") if runner.iter == 1 else None)
    stopped.train()
    failed = toy_runner(work_dir=tmp_path / "fail", val=None, default_hooks={"checkpoint": None})

    @failed.on("before_train_iter")
    def fail(runner: Any) -> None:
        logging.getLogger("hookline").warning("the %s is odd", "batch")
        if runner.iter == 2:
            raise ValueError("a bad batch")

    with pytest.raises(ValueError, match="a bad batch"):
        failed.train()
    signaled = toy_runner(work_dir=tmp_path / "signal", val=None)
    signaled.on("after_train_iter")(lambda runner: os.kill(os.getpid(), signal.SIGTERM) if runner.iter == 1 else None)
    with pytest.raises(SystemExit):
        signaled.train()
    start = ("start", 0, 0, {"resumed_from": None, "processes": 1})
    assert told(tmp_path / "stop") == [
        start,
        ("stop", 2, 0, {"reason": "enough", "by": "<lambda>"}),
        ("end", 2, 0, {"code": 0}),
    ]
    *warnings, failure, end = told(tmp_path / "fail")
    assert warnings == [start, *(("warning", step, 0, {"text": "the batch is odd"}) for step in range(3))]
    assert failure[:3] == ("failure", 2, 0)
    assert failure[3]["text"].startswith("ValueError: a bad batch\n")
    assert end == ("end", 2, 0, {"code": 1})
    assert told(tmp_path / "signal") == [
        start,
        ("save", 2, 0, {"file": "iter_2.pth", "best": None, "complete": True}),
        ("signal", 2, 0, {"name": "SIGTERM", "rank": None}),
        ("end", 2, 0, {"code": 143}),
    ]


def test_an_evaluation_does_not_change_the_journal(tmp_path: Path) -> None:
    toy_runner(max_epochs=1, work_dir=tmp_path).train()
    before = (tmp_path / journal.NAME).read_bytes()
    toy_runner(work_dir=tmp_path).val()
    assert (tmp_path / journal.NAME).read_bytes() == before


def test_a_save_in_the_background_has_the_step_of_its_state(tmp_path: Path) -> None:
    hooks = {"checkpoint": {"interval": 2, "by_epoch": False, "async_save": True}}
    toy_runner(max_epochs=2, work_dir=tmp_path, val=None, default_hooks=hooks).train()
    saves = [(event[1], event[3]["file"]) for event in told(tmp_path) if event[0] == "save"]
    assert saves == [(2, "iter_2.pth"), (4, "iter_4.pth"), (6, "iter_6.pth"), (8, "iter_8.pth")]


def test_a_journal_that_cannot_be_written_never_ends_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: Any, line: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hookline.rundir.journal.Journal._put", refuse)
    assert toy_runner(max_epochs=1, work_dir=tmp_path, quiet=False).train() is not None
    lines = [line for line in capsys.readouterr().out.splitlines() if journal.NAME in line]
    assert lines == ["warning: events.jsonl cannot be written: No space left on device; the run continues"]
    assert told(tmp_path) == []


def test_a_disk_that_was_full_for_a_while_does_not_hide_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened = journal.Journal(lambda: (3, 1))
    opened.open(tmp_path)
    file: Any = opened._file
    full = SimpleNamespace(write=lambda text: file.write(text[:10]), close=file.close)
    opened.note("start")
    monkeypatch.setattr(opened, "_file", full)
    opened.note("validation")  # the disk takes a part of it
    full.write = lambda text: file.write(b"")
    opened.note("validation")
    monkeypatch.setattr(opened, "_file", file)
    opened.note("end", code=0)
    opened.close()
    assert [event["kind"] for event in journal.read(tmp_path)] == ["start", "end"]
    assert states.state_of(tmp_path).name == "finished"
    assert caplog.messages == ["events.jsonl cannot be written: No space left on device; the run continues"]


def test_a_failure_is_reported_without_holding_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may hold the lock of a log handler, and wait for the journal."""
    opened = journal.Journal(lambda: (3, 1))
    opened.open(tmp_path)
    free: list[bool] = []

    def take_and_release() -> None:
        free.append(opened._lock.acquire(timeout=0.2))
        if free[-1]:
            opened._lock.release()

    def look(*args: Any) -> None:
        thread = threading.Thread(target=take_and_release)
        thread.start()
        thread.join()

    def refuse(line: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(opened, "_put", refuse)
    monkeypatch.setattr(journal.log, "warning", look)
    opened.note("start")
    opened.close()
    assert free == [True]


def test_something_else_under_its_name_is_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / journal.NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="must be a regular file of this run, not a symbolic link"):
        toy_runner(work_dir=tmp_path).train()
    assert not (tmp_path / "elsewhere").exists()


def test_lines_that_are_not_events_are_left_out_and_a_line_that_was_cut_off_is_ended(tmp_path: Path) -> None:
    lines = [
        '{"time": 1, "step": 2, "epoch": 0, "kind": "save"}',
        "[1]",
        "{",
        '{"kind": 3}',
        '{"kind": "x", "time": "y"}',
    ]
    (tmp_path / journal.NAME).write_text("\n".join(lines) + '\n{"time": 1, "st')
    assert journal.read(tmp_path) == [json.loads(lines[0])]
    opened = journal.Journal(lambda: (3, 1))
    opened.note("warning", text="an early one")
    opened.open(tmp_path)
    opened.note("end", code=0)
    opened.close()
    opened.note("end", code=1)
    assert [event["kind"] for event in journal.read(tmp_path)] == ["save", "warning", "end"]


def test_long_texts_and_many_warnings_are_bounded(tmp_path: Path) -> None:
    opened = journal.Journal(lambda: (0, 0))
    opened.open(tmp_path)
    for number in range(journal.MOST_WARNINGS + 50):
        opened.note("warning", text=f"{number}" if number else "x" * 10_000)
    opened.close()
    events = journal.read(tmp_path)
    assert len(events) == journal.MOST_WARNINGS
    assert events[0]["text"] == "x" * (journal.LONGEST - 1) + "…"
    assert events[-1]["text"] == "there are more warnings, which only run.log has"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-1", "1e999", "1" + "0" * 400, "1e300", "true"])
@pytest.mark.parametrize("name", ["time", "step", "epoch"])
def test_an_event_with_a_number_that_nothing_could_show_is_left_out(tmp_path: Path, name: str, number: str) -> None:
    good = '{"time": 1, "step": 2, "epoch": 0, "kind": "start"}'
    bad = good.replace(f'"{name}": {json.loads(good)[name]}', f'"{name}": {number}')
    (tmp_path / journal.NAME).write_text(f"{good}\n{bad}\n")
    assert journal.read(tmp_path) == [json.loads(good)]


def test_other_numbers_of_an_event_are_finite() -> None:
    line = b'{"time": 1, "step": 2, "epoch": 0, "kind": "x", "a": NaN, "b": [1e999, {"c": -Infinity}], "d": 1.5}'
    event = journal.parse(line)
    assert event is not None
    assert (event["a"], event["b"], event["d"]) == (None, [None, {"c": None}], 1.5)

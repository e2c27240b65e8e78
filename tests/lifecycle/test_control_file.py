"""Orders from outside: carried out once, through requests, and answered in the journal at their step."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline import Optim, Runner
from hookline.checkpoint import store
from hookline.errors import StorageError
from hookline.lifecycle import control_file
from hookline.rundir import control, journal
from hookline.testing import toy_runner


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_file, "INTERVAL", 0.005)


def train(folder: Path, orders: dict[int, list[str]], **parts: Any) -> Runner:
    """Train. After some iterations, somebody writes orders; each iteration waits until the run has read them."""
    runner = toy_runner(**{"work_dir": folder, "max_epochs": 4, "default_hooks": {"checkpoint": None}, **parts})

    @runner.on("after_train_iter", priority="LOWEST")
    def ask(runner: Runner) -> None:
        given = orders.get(runner.iter + 1, [])
        for action in given:
            control.ask(folder, action, "me")
        end = time.monotonic() + 30
        while len(runner._host.requests.orders) < len(given) and time.monotonic() < end:
            time.sleep(0.002)

    runner.train()
    return runner


def answers(folder: Path) -> list[tuple[Any, ...]]:
    found = [event for event in journal.read(folder) if event["kind"] == "action"]
    return [
        (each["name"], each["step"], each["state"], each["reason"], *([each["file"]] if "file" in each else []))
        for each in found
    ]


def validations(folder: Path) -> list[int]:
    return [event["step"] for event in journal.read(folder) if event["kind"] == "validation"]


def test_a_save_and_a_validation_happen_at_the_end_of_the_iteration(tmp_path: Path) -> None:
    train(tmp_path, {2: ["save"], 6: ["validate"]}, max_epochs=2)
    assert answers(tmp_path) == [("save", 2, "done", "", "iter_2.pth"), ("validate", 6, "done", "")]
    assert validations(tmp_path) == [4, 6, 8]
    assert [path.name for path in tmp_path.glob("*.pth")] == ["iter_2.pth"]
    assert not (tmp_path / control.NAME).exists()


@pytest.mark.parametrize(("action", "unit", "end"), [("stop_after_step", "step", 6), ("stop_after_epoch", "epoch", 8)])
def test_a_stop_is_for_now_and_a_resumed_run_continues(tmp_path: Path, action: str, unit: str, end: int) -> None:
    hooks: dict[str, Any] = {"default_hooks": {}}
    assert train(tmp_path, {6: [action]}, **hooks).iter == end
    assert answers(tmp_path) == [(action, end, "done", "")]
    (stop,) = [event for event in journal.read(tmp_path) if event["kind"] == "stop"]
    assert (stop["step"], stop["reason"]) == (end, f"asked to stop after this {unit} by me")
    assert train(tmp_path, {}, resume=True, **hooks).iter == 16


def test_orders_wait_for_the_end_of_an_accumulation_window(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path, max_epochs=1, val=None, default_hooks={"checkpoint": None})
    runner._host.use_optims(Optim(torch.optim.SGD(runner.model.parameters(), lr=0.1), accumulate=2))

    @runner.on("after_train_iter")
    def ask(runner: Runner) -> None:
        if runner.iter == 0:
            control.ask(tmp_path, "save", "me")
            while not runner._host.requests.orders:
                time.sleep(0.002)

    runner.train()
    assert answers(tmp_path) == [("save", 2, "done", "", "iter_2.pth")]


def test_a_command_that_the_run_cannot_follow_is_refused_with_the_reason(tmp_path: Path) -> None:
    train(tmp_path, {2: ["validate"]}, val=None, max_epochs=1)
    assert answers(tmp_path) == [("validate", 2, "refused", "the run has no validation")]


def test_orders_that_come_too_late_or_from_before_are_refused(tmp_path: Path) -> None:
    tmp_path.joinpath(control.NAME).write_text("an order of an earlier training\n")
    runner = toy_runner(work_dir=tmp_path, max_epochs=1, val=None, default_hooks={"checkpoint": None})

    @runner.on("before_train_iter")
    def ask(runner: Runner) -> None:
        if runner.iter == 0:
            assert not (tmp_path / control.NAME).exists()
            old = {"id": "0123456789", "time": time.time() - 100, "action": "save", "by": "me"}
            (tmp_path / control.NAME).write_text(json.dumps(old) + "\n")
            end = time.monotonic() + 30
            while not answers(tmp_path) and time.monotonic() < end:
                time.sleep(0.002)

    runner.on("after_run")(lambda runner: control.ask(tmp_path, "stop_after_step", "me"))
    runner.train()
    assert answers(tmp_path) == [
        ("save", 0, "refused", "it was asked for before this training began"),
        ("stop_after_step", 4, "refused", "the training ended before it could be carried out"),
    ]
    assert list(tmp_path.glob("*.pth")) == []


def test_a_checkpoint_that_cannot_be_written_is_refused_and_the_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(store, "write", refuse)
    runner = train(tmp_path, {2: ["save"]}, val=None, max_epochs=1)
    assert runner.iter == 4
    assert answers(tmp_path) == [("save", 2, "refused", "the checkpoint was not written")]


def test_a_hostile_control_file_is_reported_once_and_never_ends_the_run(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path, max_epochs=1, val=None, default_hooks={"checkpoint": None})

    def warnings() -> list[str]:
        return [event["text"] for event in journal.read(tmp_path) if event["kind"] == "warning"]

    @runner.on("before_train_iter")
    def plant(runner: Runner) -> None:
        if runner.iter == 0:
            (tmp_path / control.NAME).symlink_to("/etc/passwd")
            end = time.monotonic() + 30
            while not warnings() and time.monotonic() < end:
                time.sleep(0.002)

    runner.train()
    assert runner.iter == 4
    assert warnings() == [
        f"{tmp_path}/control.jsonl must be a regular file of this run, not a symbolic link; move it away, or choose "
        "another work_dir. The run continues, and takes no further orders from outside."
    ]


def test_the_loop_pays_nothing_while_nobody_asks(tmp_path: Path) -> None:
    """Without orders, an iteration of an epoch does not even look for them."""
    runner = toy_runner(work_dir=tmp_path, max_epochs=1, val=None, default_hooks={"checkpoint": None})
    looked = []

    class Watched(list[Any]):
        def __bool__(self) -> bool:
            looked.append(runner.iter)
            return False

    runner._host.requests.orders = Watched()  # type: ignore[assignment]  # only its truth is asked for
    runner.train()
    assert set(looked) <= {0, 4}, "at the start, and at the end of the epoch"


def test_the_thread_ends_with_the_training(tmp_path: Path) -> None:
    toy_runner(work_dir=tmp_path, max_epochs=1).train()
    assert [thread.name for thread in threading.enumerate() if thread.name == "hookline-control"] == []


def test_an_order_with_a_time_beyond_all_floats_is_ignored_even_at_the_very_end(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path, max_epochs=1, val=None, default_hooks={"checkpoint": None})

    @runner.on("after_train")
    def plant(runner: Runner) -> None:
        order = {"id": "0123456789", "action": "save", "by": "me", "time": 10**400}
        (tmp_path / control.NAME).write_text(json.dumps(order) + "\n")

    runner.train()
    assert [event["kind"] for event in journal.read(tmp_path)] == ["start", "end"]

"""The control file: orders from outside, each read once, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hookline.errors import HooklineError, StorageError
from hookline.rundir import control


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / control.NAME).read_text().splitlines()]


def test_an_order_is_one_line_and_is_read_once(tmp_path: Path) -> None:
    inbox = control.Inbox(tmp_path, 0)
    assert inbox.poll() == []
    first = control.ask(tmp_path, "save", "me")
    assert lines(tmp_path) == [{"id": first.id, "time": first.time, "action": "save", "by": "me"}]
    assert inbox.poll() == [first]
    assert inbox.poll() == []
    later = [control.ask(tmp_path, action, "me") for action in ("validate", "stop_after_epoch")]
    assert inbox.poll() == later
    control.remove(tmp_path)
    assert list(tmp_path.iterdir()) == []
    again = control.ask(tmp_path, "save", "me")
    assert inbox.poll() == [again]


def test_an_order_with_a_known_id_is_not_read_again(tmp_path: Path) -> None:
    inbox = control.Inbox(tmp_path, 0)
    order = control.ask(tmp_path, "save", "me")
    text = (tmp_path / control.NAME).read_text()
    (tmp_path / control.NAME).write_text(text * 3)
    assert inbox.poll() == [order]
    (tmp_path / control.NAME).write_text(text * 4)
    assert inbox.poll() == []


def test_an_unknown_action_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(HooklineError, match="^unknown action 'savee'; did you mean 'save'\\?$"):
        control.ask(tmp_path, "savee", "me")
    assert list(tmp_path.iterdir()) == []


GOOD = {"id": "0123456789", "time": 5, "action": "save", "by": "me"}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        json.dumps("x" * 2000),
        *(json.dumps({**GOOD, **wrong}) for wrong in (
            {"id": "../../etc"}, {"id": 5}, {"action": "__import__('os')"}, {"action": ["save"]}, {"by": "x" * 101},
            {"by": None}, {"time": "now"}, {"time": True}, {"time": float("nan")}, {"time": 10**400},
            {"more": "x" * 2000},
        )),
    ],
)  # fmt: skip
def test_whatever_is_not_an_order_is_ignored(tmp_path: Path, line: str) -> None:
    (tmp_path / control.NAME).write_text(f"{line}\n{json.dumps(GOOD)}\n")
    inbox = control.Inbox(tmp_path, 0)
    found = inbox.poll() + inbox.poll() + inbox.poll()
    assert [order.id for order in found] == [GOOD["id"]]


def test_a_line_that_is_being_written_waits(tmp_path: Path) -> None:
    inbox, text = control.Inbox(tmp_path, 0), json.dumps(GOOD)
    (tmp_path / control.NAME).write_text(text[:20])
    assert inbox.poll() == []
    (tmp_path / control.NAME).write_text(f"{text}\n")
    assert [order.id for order in inbox.poll()] == [GOOD["id"]]


def test_only_a_regular_file_of_the_same_user_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, elsewhere = tmp_path / control.NAME, tmp_path / "elsewhere"
    elsewhere.write_text(f"{json.dumps(GOOD)}\n")
    path.symlink_to(elsewhere)
    with pytest.raises(StorageError, match="must be a regular file of this run, not a symbolic link"):
        control.Inbox(tmp_path, 0).poll()
    with pytest.raises(StorageError, match="not a symbolic link"):
        control.ask(tmp_path, "save", "me")
    control.remove(tmp_path)
    assert path.is_symlink(), "a link is not ours"
    path.unlink()
    elsewhere.rename(path)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(StorageError, match=r"control\.jsonl belongs to another user$"):
        control.Inbox(tmp_path, 0).poll()


def test_a_flood_of_orders_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "MOST_ORDERS", 3)
    monkeypatch.setattr(control, "LARGEST", 400)
    for _ in range(5):
        control.ask(tmp_path, "save", "me")
    with pytest.raises(StorageError, match="too large for another order"):
        control.ask(tmp_path, "save", "me")
    with pytest.raises(StorageError, match="has more than 3 orders"):
        control.Inbox(tmp_path, 0).poll()


def test_a_folder_that_became_something_else_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(StorageError, match=r"run/control\.jsonl cannot be read: Not a directory$"):
        control.Inbox(tmp_path / "run", 0).poll()

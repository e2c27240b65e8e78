"""Kills at each system call of a move. From then on, every further call fails, so nothing can be tidied up."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hookline.errors import StorageError
from hookline.rundir import moves
from tests.faults.special_files import put

CALLS = ("rename", "mkdir", "rmdir", "unlink")
BEFORE = {
    "a/config.yaml": "config",
    "a/metrics.jsonl": "records",
    "a/mine.txt": "mine",
    "a/old-1/x": "older",
    "b/saved/epoch_1.pth": "first",
    "b/epoch_2.pth": "second",
}
AFTER = {
    "a/metrics.jsonl": "records",
    "a/mine.txt": "mine",
    "a/old-1/x": "older",
    "a/old-2/config.yaml": "config",
    "a/old-2/metrics.jsonl": "records",
    "b/old-1/epoch_1.pth": "first",
    "b/old-1/epoch_2.pth": "second",
}


@pytest.fixture(autouse=True)
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the folders that were put on the disk, and do not wait for a real disk."""
    found: list[str] = []
    monkeypatch.setattr(moves, "sync_folder", lambda folder: found.append(folder.name))
    return found


class Killed(BaseException):
    """What a system call raises after the kill."""


def fill(folder: Path) -> None:
    for name, text in BEFORE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def origin(path: Path, folder: Path) -> Path:
    return folder / "saved" / path.name if path.name == "epoch_1.pth" else folder / path.name


def move(folder: Path) -> dict[Path, Path]:
    a, b = folder / "a", folder / "b"
    files = {a: [a / "config.yaml"], b: [b / "saved" / "epoch_1.pth", b / "epoch_2.pth"], folder / "c": []}
    return moves.move_all(files, origin, {a: [a / "metrics.jsonl", a / "missing"], folder / "c": [a / "mine.txt"]})


def move_back(folder: Path) -> None:
    (folder / "a" / "config.yaml").write_text("of a run that was refused")
    moves.move_all_back({folder / "a": folder / "a" / "old-2", folder / "b": folder / "b" / "old-1"}, origin)


def finish(folder: Path) -> list[str]:
    return moves.finish([folder / "a", folder / "b", folder / "missing"], origin)


def is_killed(function: Callable[..., Any], folder: Path, position: int) -> bool:
    """Call the function until it makes system call number `position`; return whether it made that many."""
    made = 0

    def counting(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal made
            made += 1
            if made > position:
                raise Killed
            return call(*arguments, **options)

        return counted

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, counting(getattr(os, name)))
        try:
            function(folder)
        except Killed:
            return True
    return False


def test_files_are_moved_copied_and_moved_back(tmp_path: Path, synced: list[str]) -> None:
    fill(tmp_path)
    archives = move(tmp_path)
    # The folders of all moved files are on the disk before the rename that decides, and so is each rename after it.
    assert synced == [*["a", ".old-2", "a"], *["b", ".old-1", "b", "saved"], *["a", "b", "a"]]
    assert archives == {tmp_path / "a": tmp_path / "a" / "old-2", tmp_path / "b": tmp_path / "b" / "old-1"}
    assert contents(tmp_path) == AFTER
    assert finish(tmp_path) == []
    move_back(tmp_path)
    assert contents(tmp_path) == BEFORE
    assert not (tmp_path / "b" / "old-1").exists()


def test_a_kill_at_any_call_of_a_move_leaves_all_files_here_or_all_there(tmp_path: Path) -> None:
    outcomes = []
    for position in range(100):
        folder = tmp_path / str(position)
        fill(folder)
        if not is_killed(move, folder, position):
            break
        unfinished = moves.are_unfinished([folder / "a", folder / "b"])
        lines = finish(folder)
        found = contents(folder)
        assert found in (BEFORE, AFTER), position
        assert unfinished == bool(lines)
        outcomes.append((found == AFTER, [line.split()[0] for line in lines]))
        assert not moves.are_unfinished([folder / "a", folder / "b"])
    # mkdir, copies, file, mkdir, two files, then the rename that decides, b, copies out, a
    assert outcomes == [
        (False, []),
        *[(False, ["restored"])] * 3,
        *[(False, ["restored"] * 2)] * 3,
        (True, ["moved"] * 2),
        *[(True, ["moved"])] * 3,
    ]


@pytest.mark.parametrize("function", [move, move_back])
def test_a_kill_while_a_killed_move_is_finished_does_not_change_the_outcome(
    tmp_path: Path, function: Callable[[Path], Any]
) -> None:
    tried = 0
    for first in range(100):
        outcomes = []
        for second in range(100):
            folder = tmp_path / f"{first}-{second}"
            fill(folder)
            if function is move_back:
                move(folder)
            if not is_killed(function, folder, first):
                assert tried > 40
                return
            again = is_killed(finish, folder, second)
            finish(folder)
            found = contents(folder)
            if function is move_back and found != BEFORE:
                assert found.pop("a/config.yaml") == "of a run that was refused"
            assert found in (BEFORE, AFTER), (first, second)
            outcomes.append(found)
            tried += 1
            if not again:
                break
        assert all(each == outcomes[0] for each in outcomes), first


def test_a_move_that_fails_moves_everything_back(tmp_path: Path) -> None:
    fill(tmp_path)
    b = tmp_path / "b"
    files = {tmp_path / "a": [tmp_path / "a" / "config.yaml"], b: [b / "epoch_2.pth", b / "gone"]}
    with pytest.raises(FileNotFoundError):
        moves.move_all(files, origin)
    assert contents(tmp_path) == BEFORE
    assert not moves.are_unfinished([tmp_path / "a", b])


def test_an_archive_never_takes_a_name_that_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "old-1").symlink_to("nowhere")
    (tmp_path / "old-2").write_text("mine")
    (tmp_path / "file").write_text("records")
    archives = moves.move_all({tmp_path: [tmp_path / "file"]}, origin)
    assert archives == {tmp_path: tmp_path / "old-3"}
    assert (tmp_path / "old-3" / "file").read_text() == "records"


@pytest.mark.parametrize("name", [".old-1", ".old-7.complete"])
@pytest.mark.parametrize("kind", ["pipe", "dangling", "loop", "file"])
def test_something_else_with_the_name_of_an_unfinished_move_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    if kind == "file":
        (tmp_path / name).write_text("mine")
    else:
        put(kind, tmp_path / name)
    with pytest.raises(StorageError, match=rf"{name} must be a folder of this run, not a "):
        moves.finish([tmp_path], origin)
    assert os.path.lexists(tmp_path / name)

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hookline.errors import StorageError
from hookline.rundir import ownership
from hookline.testing import toy_runner

HOLD = """
import sys, time
from pathlib import Path
from hookline.rundir import ownership
with ownership.locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_run_is_refused_with_pid_and_host_and_the_lock_is_free_after_a_kill(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        lock = json.loads((tmp_path / ".lock").read_text())
        for start in ("train", "val", "test"):
            with pytest.raises(StorageError) as refused:
                getattr(toy_runner(work_dir=tmp_path), start)()
            assert str(refused.value) == (
                f"{tmp_path} is in use by process {holder.pid} on {os.uname().nodename} since {lock['since']}; wait "
                "for that run, end it, or choose another work_dir"
            )
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock"]
        holder.kill()
        holder.wait()
    assert (tmp_path / ".lock").exists()
    toy_runner(work_dir=tmp_path).train()
    assert not (tmp_path / ".lock").exists()


def test_two_runs_of_one_process_do_not_share_a_folder(tmp_path: Path) -> None:
    first, second = toy_runner(work_dir=tmp_path), toy_runner(work_dir=tmp_path)
    first.on("before_train")(lambda: second.train())
    with pytest.raises(StorageError, match=re.escape(f"is in use by another run of this process ({os.getpid()})")):
        first.train()
    second.train()


def test_the_lock_is_taken_when_a_run_starts_and_not_when_it_is_created(tmp_path: Path) -> None:
    with ownership.locked(tmp_path):
        runner = toy_runner(work_dir=tmp_path)
    runner.train()
    assert runner.iter == 8


def test_a_lock_file_of_another_program_is_neither_emptied_nor_removed(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("42\n")
    with pytest.raises(StorageError) as refused:
        toy_runner(work_dir=tmp_path).train()
    assert str(refused.value) == (
        f"{tmp_path}/.lock must be a lock of this run, not a file of another program; move it away, or choose another "
        "work_dir"
    )
    assert (tmp_path / ".lock").read_text() == "42\n"
    for left in ("", '{"p', '{"pid": 1, "host"'):  # as a full disk or a kill leaves it
        (tmp_path / ".lock").write_text(left)
        toy_runner(work_dir=tmp_path, max_epochs=1).train()
        assert not (tmp_path / ".lock").exists()


def test_the_probe_for_writing_leaves_nothing_and_touches_nothing(tmp_path: Path) -> None:
    (tmp_path / ".writable").write_text("mine")
    ownership.claim(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {".writable": "mine"}


def test_a_locked_folder_is_lost_when_it_is_deleted_moved_or_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    assert not ownership.is_lost(folder)
    with ownership.locked(folder):
        (folder / ownership.LOCK).unlink()
        assert not ownership.is_lost(folder)
        folder.rename(tmp_path / "moved")
        assert ownership.is_lost(folder)
        folder.mkdir()
        (folder / ownership.LOCK).write_text("of another run")
        assert ownership.is_lost(folder)
        (folder / ownership.LOCK).rename(tmp_path / "lock")
        folder.rmdir()
        folder.touch()
        assert ownership.is_lost(folder)
        folder.unlink()
        folder.mkdir()
        (tmp_path / "lock").rename(folder / ownership.LOCK)
    assert not ownership.is_lost(folder)
    assert (folder / ownership.LOCK).read_text() == "of another run"


@pytest.mark.parametrize("content", [b"\0" * 80, b'{"pid": 1\0\0\0', b"\0"])
def test_a_lock_of_nul_bytes_after_a_power_failure_is_a_stale_lock(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".lock").write_bytes(content)
    toy_runner(work_dir=tmp_path, max_epochs=1, resume=True).train()
    assert (tmp_path / "epoch_1.pth").exists()
    assert not (tmp_path / ".lock").exists()

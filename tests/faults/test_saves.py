from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline.checkpoint import seal
from hookline.errors import StorageError
from hookline.testing import Recorder, toy_runner
from tests.faults.children import running
from tests.faults.runs import as_command
from tests.faults.saves import MOMENTS, improve_and_die, improving_runner, save_and_die, valid_after
from tests.run_files import USUAL, files_in

#: The newest intact checkpoint after a kill, by the moment of the kill.
EXPECTED = dict.fromkeys(MOMENTS[:4], "epoch_2.pth") | dict.fromkeys(MOMENTS[4:], "epoch_3.pth")


@pytest.fixture(scope="module")
def whole() -> Any:
    runner = toy_runner(max_epochs=4)
    runner.train()
    return runner.model.state_dict()


@pytest.mark.parametrize(
    ("moment", "verified"),
    [*((moment, "at once") for moment in MOMENTS), *((moment, "in the background") for moment in MOMENTS[4:])],
)
def test_fault_2_a_kill_at_any_moment_of_a_save_leaves_the_old_or_the_new_checkpoint(
    tmp_path: Path, moment: str, verified: str, whole: Any
) -> None:
    with running(save_and_die, str(tmp_path), moment, "hookline", 4, verified) as child:
        assert child.wait() == -signal.SIGKILL, child.output()
    assert valid_after(tmp_path) == EXPECTED[moment]
    resumed = toy_runner(
        max_epochs=4, work_dir=tmp_path, resume=True, default_hooks={"checkpoint": {"max_keep_ckpts": 2}}
    )
    resumed.train()
    assert str(resumed.model.state_dict()) == str(whole)
    assert files_in(tmp_path) == sorted(["epoch_3.pth", "epoch_4.pth", "resume.json", *USUAL])


def test_fault_2_a_kill_in_the_last_save_leaves_no_checkpoint_too_many_after_a_resume(tmp_path: Path) -> None:
    with running(save_and_die, str(tmp_path), "before removal", "hookline", 3) as child:
        assert child.wait() == -signal.SIGKILL, child.output()
    assert sorted(path.name for path in tmp_path.glob("*.pth")) == ["epoch_1.pth", "epoch_2.pth", "epoch_3.pth"]
    toy_runner(
        max_epochs=3, work_dir=tmp_path, resume=True, default_hooks={"checkpoint": {"max_keep_ckpts": 2}}
    ).train()
    assert files_in(tmp_path) == sorted(["epoch_2.pth", "epoch_3.pth", "resume.json", *USUAL])


@pytest.mark.parametrize(("hook", "prefix"), [("CheckpointHook", "best_score_"), ("EvaluateHook", "best_eval_score_")])
def test_fault_2_neither_does_a_kill_after_a_best_save(tmp_path: Path, hook: str, prefix: str) -> None:
    with running(improve_and_die, str(tmp_path), hook) as child:
        assert child.wait() == -signal.SIGKILL, child.output()
    left = sorted(path.name for path in tmp_path.glob("*.pth"))
    assert left == [f"{prefix}epoch_1.pth", f"{prefix}epoch_2.pth"]
    improving_runner(tmp_path, hook, resume=True).train()
    assert sorted(path.name for path in tmp_path.glob("*.pth")) == left[1:]


def test_a_naive_saver_fails_these_tests(tmp_path: Path) -> None:
    left = {}
    for moment in ("opened", "half written"):
        folder = tmp_path / moment
        with running(save_and_die, str(folder), moment, "naive") as child:
            assert child.wait() == -signal.SIGKILL, child.output()
        left[moment] = valid_after(folder)
    assert left == {"opened": "", "half written": ""}


# ------------------------------------------------------------------------------------------------ full disks


def train_with_limited_file_size(folder: str, limit: int, hook: dict[str, Any]) -> None:
    """Train with a limit on the size of files, which acts like a full disk for the second checkpoint."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    runner = toy_runner(max_epochs=3, work_dir=folder, default_hooks={"checkpoint": hook})

    @runner.on("before_save_checkpoint")
    def shrink(runner: Any) -> None:
        room = limit if runner.epoch == 2 else resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))

    runner.train()


@pytest.mark.parametrize("async_save", [False, True])
@pytest.mark.parametrize(
    ("policy", "code", "files"), [("raise", 5, ["epoch_1.pth"]), ("go_on", 0, ["epoch_1.pth", "epoch_3.pth"])]
)
def test_fault_12_a_full_disk_leaves_the_old_checkpoint_and_no_leftovers(
    tmp_path: Path, policy: str, code: int, files: list[str], async_save: bool
) -> None:
    hook = {"on_save_error": policy, "async_save": async_save}
    with running(as_command, train_with_limited_file_size, str(tmp_path), 4096, hook) as child:
        assert child.wait() == code, child.output()
        printed = child.output()
    assert sorted(path.name for path in tmp_path.glob("*.pth")) == files
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert valid_after(tmp_path) == files[-1]
    reported = (tmp_path / "run.log").read_text() if policy == "go_on" else printed
    assert f"{tmp_path / 'epoch_2.pth'} cannot be written: File too large" in reported


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """Yield a real filesystem of 256 KiB and 0. If mounting is not allowed, yield a folder and a file size limit."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["sh", "-c", 'mount -t tmpfs -o size=256k tmpfs "$1"', "sh", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        yield folder, 20_000
        return
    try:
        yield folder, 0
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def train_until_full(folder: str, limit: int) -> None:
    torch.set_num_threads(1)
    runner = toy_runner(max_epochs=100, work_dir=folder)

    @runner.on("before_train_epoch")
    def shrink(runner: Any) -> None:
        if limit and runner.epoch == 3:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    runner.train()


def test_fault_12_a_real_disk_that_runs_full_ends_with_exit_code_5(small_disk: tuple[Path, int]) -> None:
    folder, limit = small_disk
    run = folder / "run"
    with running(as_command, train_until_full, str(run), limit) as child:
        assert child.wait() == 5, child.output()
        assert f"cannot be written: {'File too large' if limit else 'No space left on device'}" in child.output()
    kept = valid_after(run)
    assert kept.startswith("epoch_")
    assert [path.name for path in run.iterdir() if path.name.endswith(".partial")] == []
    assert all(seal.damage(path) == "" for path in run.glob("*.pth"))


# --------------------------------------------------------------------------------------------- damaged files


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", ["cut", "flipped", "flipped tensor"])
def test_fault_14_a_damaged_checkpoint_is_skipped_with_a_warning_and_refused_by_path(
    tmp_path: Path, damage: str
) -> None:
    toy_runner(max_epochs=3, work_dir=tmp_path).train()
    newest = tmp_path / "epoch_3.pth"
    size = newest.stat().st_size
    if damage == "cut":
        os.truncate(newest, size - 100)
    else:
        flip(newest, size // 2 if damage == "flipped" else 2000)
    shutil.copy(newest, tmp_path / "copy")
    with pytest.raises(StorageError, match=r"epoch_3.pth cannot be (used|resumed): it(s bytes)? do(es)? not"):
        toy_runner(max_epochs=4, work_dir=tmp_path / "other", resume=newest).train()
    recorder = Recorder("before_train_epoch")
    toy_runner(max_epochs=4, work_dir=tmp_path, resume=True, custom_hooks=[recorder]).train()
    assert [event.epoch for event in recorder.events] == [2, 3]
    text = (tmp_path / "run.log").read_text()
    assert f"warning: skipped: {newest}" in text
    assert f"resumed from {tmp_path / 'epoch_2.pth'}: epoch 2, iteration 8" in text


def test_fault_15_with_no_intact_checkpoint_left_a_resume_is_refused(tmp_path: Path) -> None:
    toy_runner(max_epochs=2, work_dir=tmp_path).train()
    for path in tmp_path.glob("*.pth"):
        flip(path, 3000)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(StorageError) as refused:
        toy_runner(max_epochs=2, work_dir=tmp_path, resume=True).train()
    assert str(refused.value).splitlines() == [
        "cannot resume: there is no intact checkpoint to continue from:",
        f"  {tmp_path / 'epoch_2.pth'} is damaged: its bytes do not match its SHA-256",
        f"  {tmp_path / 'epoch_1.pth'} is damaged: its bytes do not match its SHA-256",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_fault_30_newest_is_by_step_when_the_clock_jumps(tmp_path: Path) -> None:
    toy_runner(max_epochs=3, work_dir=tmp_path).train()
    for epoch in (1, 2, 3):
        os.utime(tmp_path / f"epoch_{epoch}.pth", (1e9 - epoch, 1e9 - epoch))
    (tmp_path / "last_checkpoint").unlink()
    assert valid_after(tmp_path) == "epoch_3.pth"

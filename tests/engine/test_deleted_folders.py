"""The folder of a run is deleted while it runs: the state is saved once more, and the run ends with exit code 5."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hookline.checkpoint import seal
from hookline.errors import StorageError
from hookline.rundir import ownership
from hookline.testing import toy_runner
from tests.faults.children import running
from tests.faults.runs import as_command

if TYPE_CHECKING:
    from hookline import Runner


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def deleting(folder: Path, point: str, iteration: int, *, delete: Path | None = None, **hook: Any) -> Runner:
    """Return a run of three epochs that deletes a folder at a point."""
    runner = toy_runner(max_epochs=3, work_dir=folder, default_hooks={"checkpoint": hook})

    @runner.on(point)
    def remove(runner: Runner) -> None:
        if runner.iter == iteration:
            runner.saving.finish()  # so that no save is under way
            shutil.rmtree(delete or folder)

    return runner


def message(folder: Path, saved: Path) -> str:
    return (
        f"{folder} was deleted or moved during the run, with everything in it; saved {saved} after that; continue with "
        "resume=True, or hookline train --resume"
    )


@pytest.mark.parametrize("async_save", [False, True])
@pytest.mark.parametrize(
    ("point", "iteration", "saved"),
    [
        ("before_train_iter", 6, "epoch_2.pth"),
        ("after_val_epoch", 12, "epoch_3.pth"),
        ("after_train", 12, "epoch_3.pth"),
        ("after_run", 12, "epoch_3.pth"),
    ],
)
def test_the_next_save_or_the_end_of_the_run_reports_it(
    tmp_path: Path, point: str, iteration: int, saved: str, async_save: bool
) -> None:
    whole = toy_runner(max_epochs=3)
    whole.train()
    folder = tmp_path / "run"
    runner = deleting(folder, point, iteration, async_save=async_save)
    with pytest.raises(StorageError) as ended:
        runner.train()
    assert str(ended.value) == message(folder, folder / saved)
    assert names(folder) == [saved, "last_checkpoint"]
    assert json.loads((folder / "last_checkpoint").read_text())["name"] == saved
    resumed = toy_runner(max_epochs=3, work_dir=folder, resume=True)
    resumed.train()
    assert str(resumed.model.state_dict()) == str(whole.model.state_dict())


def test_a_save_in_the_background_that_fails_because_of_it_is_not_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    runner = toy_runner(max_epochs=1, work_dir=folder, default_hooks={"checkpoint": {"async_save": True}})
    put = seal.SealingFile._put

    def delete_and_put(self: seal.SealingFile, data: Any) -> None:
        monkeypatch.setattr(seal.SealingFile, "_put", put)
        shutil.rmtree(folder)
        put(self, data)

    monkeypatch.setattr(seal.SealingFile, "_put", delete_and_put)
    with pytest.raises(StorageError) as ended:
        runner.train()
    assert str(ended.value) == message(folder, folder / "epoch_1.pth")
    assert names(folder) == ["epoch_1.pth", "last_checkpoint"]


@pytest.mark.parametrize("point", ["after_val_epoch", "before_val_epoch"])
def test_a_signal_right_after_a_save_does_not_hide_it(tmp_path: Path, point: str) -> None:
    folder = tmp_path / "run"
    runner = deleting(folder, point, 4)
    runner.on(point)(lambda runner: os.kill(os.getpid(), signal.SIGTERM) if runner.iter == 4 else None)
    with pytest.raises(StorageError) as ended:
        runner.train()
    assert str(ended.value) == message(folder, folder / "epoch_1.pth")
    assert names(folder) == ["epoch_1.pth", "last_checkpoint"]
    whole = toy_runner(max_epochs=3)
    whole.train()
    resumed = toy_runner(max_epochs=3, work_dir=folder, resume=True)
    resumed.train()
    assert str(resumed.model.state_dict()) == str(whole.model.state_dict())


def test_checkpoints_that_are_elsewhere_remain(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "run", tmp_path / "out" / "run"
    with pytest.raises(StorageError) as ended:
        deleting(folder, "before_train_iter", 6, out_dir=str(tmp_path / "out")).train()
    assert str(ended.value) == message(folder, elsewhere / "epoch_2.pth")
    assert names(elsewhere) == ["epoch_1.pth", "epoch_2.pth", "last_checkpoint"]
    assert not folder.exists()


def test_and_so_do_records_if_the_checkpoints_are_deleted(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "run", tmp_path / "out" / "run"
    with pytest.raises(StorageError) as ended:
        deleting(folder, "before_train_iter", 6, delete=elsewhere, out_dir=str(tmp_path / "out")).train()
    assert str(ended.value) == message(elsewhere, elsewhere / "epoch_2.pth")
    assert names(elsewhere) == ["epoch_2.pth", "last_checkpoint"]
    assert names(folder) == [
        *["events.jsonl", "hooks.json", "loss_bits.bin", "metrics.jsonl", "plan.txt", "report.html", "run.log"]
    ]


def test_a_folder_that_another_run_uses_now_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    runner = toy_runner(max_epochs=3, work_dir=folder)

    @runner.on("before_train_iter")
    def take_over(runner: Runner) -> None:
        if runner.iter == 6:
            shutil.rmtree(folder)
            folder.mkdir()
            (folder / ownership.LOCK).write_text("another run")

    with pytest.raises(StorageError) as ended:
        runner.train()
    assert str(ended.value) == (
        f"{folder} was deleted or moved during the run, and another run uses it now, so nothing was saved after that"
    )
    assert names(folder) == [ownership.LOCK]
    assert (folder / ownership.LOCK).read_text() == "another run"


def test_an_evaluation_reports_it_as_well(tmp_path: Path) -> None:
    runner = toy_runner(work_dir=tmp_path / "run")
    runner.on("after_val")(lambda runner: shutil.rmtree(tmp_path / "run"))
    with pytest.raises(StorageError) as ended:
        runner.val()
    assert str(ended.value) == (
        f"{tmp_path / 'run'} was deleted or moved during the run, with everything in it; nothing was saved after that"
    )


def train_and_delete(folder: str) -> None:
    deleting(Path(folder), "after_run", 12).train()


@pytest.mark.processes
def test_the_command_ends_with_exit_code_5(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with running(as_command, train_and_delete, str(folder)) as child:
        assert child.wait() == 5
        assert child.output().endswith(f"hookline: {message(folder, folder / 'epoch_3.pth')}\n")


def test_a_changed_working_directory_is_reported_and_nothing_is_written_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(tmp_path)
    runner = toy_runner(max_epochs=3, work_dir="run")

    @runner.on("after_train_epoch")
    def leave(runner: Runner) -> None:
        if runner.epoch == 1:
            os.chdir(other)

    with pytest.raises(StorageError) as raised:
        runner.train()
    assert str(raised.value) == (
        f"the working directory was changed during the run, so run no longer means {tmp_path / 'run'}: nothing was "
        "saved after that; do not call os.chdir, or give work_dir as an absolute path"
    )
    assert names(other) == []

"""The bits of every loss, in `loss_bits.bin`."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hookline import Hook, Runner, runs
from hookline.errors import NumericsError
from hookline.rundir import loss_bits
from hookline.rundir.loss_bits import NO_LOSS, UNKNOWN
from hookline.testing import toy_runner

if TYPE_CHECKING:
    import torch
    from torch import nn


def bits(loss: float) -> int:
    number: int = struct.unpack("<Q", struct.pack("<d", loss))[0]
    return number


class Losses(Hook):
    """Keeps the bits of every loss, and skips some steps."""

    def __init__(self, skip: tuple[int, ...] = (), fail_at: int = 0, bad_at: int = 0) -> None:
        self.skip, self.fail_at, self.bad_at = skip, fail_at, bad_at
        self.seen: dict[int, int] = {}

    def before_train_iter(self, runner: Runner) -> None:
        if runner.iter + 1 == self.fail_at:
            raise ValueError("planned")
        if runner.iter + 1 in self.skip:
            runner.skip_step("planned")

    def after_train_iter(self, runner: Runner, outputs: dict[str, Any]) -> None:
        self.seen[runner.iter + 1] = bits(outputs["loss"].item())


def test_the_file_has_the_bits_of_every_loss(tmp_path: Path) -> None:
    hook = Losses()
    toy_runner(work_dir=tmp_path, batches=130, custom_hooks=[hook]).train()
    assert (tmp_path / "loss_bits.bin").stat().st_size == 260 * 8
    assert loss_bits.read(tmp_path) == list(hook.seen.values())
    assert list(map(bits, runs.load(tmp_path).losses)) == list(hook.seen.values())


def test_a_part_of_the_file_can_be_read(tmp_path: Path) -> None:
    hook = Losses()
    toy_runner(work_dir=tmp_path, custom_hooks=[hook]).train()
    assert loss_bits.read(tmp_path, 3, 5) == [hook.seen[step] for step in (3, 4, 5)]
    assert loss_bits.read(tmp_path, 7, 50) == [hook.seen[step] for step in (7, 8)]
    assert loss_bits.read(tmp_path, 9) == loss_bits.read(tmp_path / "missing") == []


def test_an_iteration_without_a_loss_has_its_own_value(tmp_path: Path) -> None:
    hook = Losses(skip=(2, 8))
    toy_runner(work_dir=tmp_path, custom_hooks=[hook]).train()
    expected = [hook.seen.get(step, bits(NO_LOSS)) for step in range(1, 9)]
    assert loss_bits.read(tmp_path) == expected
    assert [step for step in range(1, 9) if loss_bits.as_loss(expected[step - 1]) is None] == [2, 8]


def test_a_failed_run_has_the_losses_until_its_failure(tmp_path: Path) -> None:
    hook = Losses(fail_at=7)
    with pytest.raises(ValueError, match="planned"):
        toy_runner(work_dir=tmp_path, custom_hooks=[hook]).train()
    assert loss_bits.read(tmp_path) == [hook.seen[step] for step in range(1, 7)]


def test_a_loss_of_nan_is_recorded_and_is_not_a_missing_one(tmp_path: Path) -> None:
    def step(model: nn.Module, batch: Any) -> torch.Tensor:
        loss: torch.Tensor = model(batch[0]).square().mean()
        return loss * math.nan if len(calls) == 3 else loss

    class Counts(Hook):
        def after_train_iter(self) -> None:
            calls.append(1)

    calls: list[int] = []
    with pytest.raises(NumericsError, match="at iteration 5 .epoch 2, batch 1 of 4."):
        toy_runner(work_dir=tmp_path, step=step, custom_hooks=[Losses(skip=(2,)), Counts()], trial_batch=False).train()
    found = [loss_bits.as_loss(each) for each in loss_bits.read(tmp_path)]
    assert [loss if loss is None else math.isnan(loss) for loss in found[:5]] == [False, None, False, False, True]


def test_a_resumed_run_cuts_the_file_to_its_checkpoint_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    toy_runner(work_dir=whole, max_epochs=4).train()
    toy_runner(work_dir=part, max_epochs=4).train()
    for epoch in (3, 4):
        (part / f"epoch_{epoch}.pth").unlink()
    (part / "last_checkpoint").unlink()
    lengths: list[int] = []

    class Looks(Hook):
        def before_train_epoch(self) -> None:
            lengths.append((part / "loss_bits.bin").stat().st_size)

    toy_runner(work_dir=part, max_epochs=4, resume=True, custom_hooks=[Looks()]).train()
    assert lengths == [8 * 8, 12 * 8]
    assert (part / "loss_bits.bin").read_bytes() == (whole / "loss_bits.bin").read_bytes()


def test_a_run_that_was_resumed_from_another_folder_begins_with_unknown_losses(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    toy_runner(work_dir=first, max_epochs=1).train()
    toy_runner(work_dir=second, max_epochs=2, resume=first / "epoch_1.pth").train()
    toy_runner(work_dir=first, max_epochs=2, resume=True).train()
    found, whole = loss_bits.read(second), loss_bits.read(first)
    assert found == [bits(UNKNOWN)] * 4 + whole[4:]
    assert loss_bits.first_difference(found, whole) is None


def test_the_first_difference_is_found() -> None:
    one, skipped, unknown = bits(1.0), bits(NO_LOSS), bits(UNKNOWN)
    assert loss_bits.first_difference([one, one], [one, bits(math.nextafter(1.0, 2.0))]) == 1
    assert loss_bits.first_difference([one, one, one], [one, one]) is None
    assert loss_bits.first_difference([unknown, one], [one, skipped]) == 1


def test_a_fresh_run_archives_the_file_with_the_rest(tmp_path: Path) -> None:
    toy_runner(work_dir=tmp_path, max_epochs=1).train()
    before = (tmp_path / "loss_bits.bin").read_bytes()
    toy_runner(work_dir=tmp_path, max_epochs=2, seed=1).train()
    assert (tmp_path / "old-1" / "loss_bits.bin").read_bytes() == before
    assert len(loss_bits.read(tmp_path)) == 8


def test_the_losses_that_a_resume_cuts_off_are_kept_beside_the_later_checkpoints(tmp_path: Path) -> None:
    toy_runner(work_dir=tmp_path, max_epochs=3).train()
    before = (tmp_path / "loss_bits.bin").read_bytes()
    toy_runner(work_dir=tmp_path, max_epochs=3, resume=tmp_path / "epoch_1.pth").train()
    assert (tmp_path / "old-1" / "loss_bits.bin").read_bytes() == before
    assert (tmp_path / "loss_bits.bin").read_bytes() == before


def test_a_run_continues_without_the_file_if_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    runner = toy_runner(work_dir=tmp_path, max_epochs=1)
    runner.train()
    assert runner.iter == 4
    line = "loss_bits.bin cannot be written: No space left on device; the run continues without it"
    assert (tmp_path / "run.log").read_text().count(line) == 1


def test_a_file_that_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"x" * 80)
    run = tmp_path / "run"
    run.mkdir()
    (run / "loss_bits.bin").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="must be a regular file of this run, not a symbolic link"):
        toy_runner(work_dir=run).train()
    assert (tmp_path / "elsewhere").read_bytes() == b"x" * 80

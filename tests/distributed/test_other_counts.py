"""A run is resumed by another number of processes: exact, the same data with other sums, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.ranks import Outcome, run
from tests.distributed.test_ddp import apart

SAVED = "the data: the checkpoint was saved by 2 processes in the middle of an epoch"


def differences(folder: Path) -> list[str]:
    """Return the differences that a resumed run has reported in its log."""
    lines = [line[21:] for line in (folder / "run" / "run.log").read_text().splitlines()]
    return [line for line in lines if line.startswith("  ") and ": checkpoint " in line]


def fail(folder: Path, kind: str, nproc: int = 2) -> None:
    """Train into the middle of an epoch, and fail after a save."""
    done = run("interrupted", folder, kind, 16, True, nproc=nproc)
    assert done.code != 0
    assert (folder / "run" / "iter_6.pth").exists(), done.output


def refusal(done: Outcome) -> tuple[int, str]:
    """Return the exit code and the message of all processes."""
    codes = {each["code"] for each in done.ranks}
    assert len(codes) == 1
    return codes.pop(), done.ranks[0]["message"]


@pytest.mark.parametrize("kind", ["plain", "list", "stateful"])
def test_as_many_processes_resume_exactly_in_the_middle_of_an_epoch(tmp_path: Path, kind: str) -> None:
    straight = run("interrupted", tmp_path / "straight", kind)
    fail(tmp_path / "failed", kind)
    again = run("interrupted", tmp_path / "failed", kind)
    assert (straight.code, again.code) == (0, 0), again.output
    assert [each["hash"] for each in again.ranks] == [each["hash"] for each in straight.ranks]
    assert differences(tmp_path / "failed") == []


@pytest.mark.parametrize(
    ("then", "now", "counts"), [(2, 0, "checkpoint 2, this run 1"), (0, 2, "checkpoint 1, this run 2")]
)
def test_another_number_of_processes_resumes_with_the_same_samples_in_each_step(
    tmp_path: Path, then: int, now: int, counts: str
) -> None:
    straight = run("interrupted", tmp_path / "straight", "plain", nproc=0)
    fail(tmp_path / "failed", "plain", nproc=then)
    again = run("interrupted", tmp_path / "failed", "plain", nproc=now)
    assert again.code == 0, again.output
    assert apart(again.ranks[0]["weights"], straight.ranks[0]["weights"]) < 1e-6
    assert [line for line in differences(tmp_path / "failed") if "threads" not in line] == [
        f"  processes: {counts}: every step has the same 16 samples; sums may differ in their last bits, and random "
        "numbers that the model draws are others"
    ]


def test_other_samples_in_the_steps_are_refused_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    fail(tmp_path, "plain")
    again = run("interrupted", tmp_path, "plain", 8, nproc=0)
    assert refusal(again) == (
        5,
        f"{tmp_path}/run/iter_6.pth does not fit this run; nothing was loaded:\n"
        f"  {SAVED}, with batches of 16 samples in all processes together; here they have 8, so samples would be left "
        "out or repeated; set batch_size to 16, or resume from a checkpoint at the end of an epoch",
    )


@pytest.mark.parametrize("kind", ["list", "stateful"])
def test_a_loader_that_cannot_be_divided_differently_is_refused_in_the_middle_of_an_epoch(
    tmp_path: Path, kind: str
) -> None:
    fail(tmp_path, kind)
    again = run("interrupted", tmp_path, kind, nproc=0)
    assert refusal(again) == (
        5,
        f"{tmp_path}/run/iter_6.pth does not fit this run; nothing was loaded:\n"
        f"  {SAVED}, and only a plain DataLoader or a ResumableLoader can be divided differently there; start as many "
        "processes, or resume from a checkpoint at the end of an epoch",
    )

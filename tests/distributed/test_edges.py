"""Little data, late requests, and workers that get a signal, in two processes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from hookline.checkpoint import seal
from tests.distributed.ranks import run

run_case = partial(run, module="edges")


@pytest.mark.parametrize("samples", [1, 0])  # of a dataset; of a list with one batch
def test_a_process_without_a_batch_takes_part_in_a_validation(tmp_path: Path, samples: int) -> None:
    one, two = (
        run_case("small_validation", tmp_path / "one", samples, nproc=0),
        run_case("small_validation", tmp_path / "two", samples),
    )
    assert (one.code, two.code) == (0, 0), two.output
    for rank in two.ranks:
        assert rank["metrics"][0]["accuracy"] == one.ranks[0]["metrics"][0]["accuracy"]
        assert rank["metrics"][0]["loss"] == pytest.approx(one.ranks[0]["metrics"][0]["loss"], abs=1e-5)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_trial_that_fails_in_one_process_ends_all_with_that_error(tmp_path: Path, strategy: str) -> None:
    main, failed = run_case("failing_trial", tmp_path, False, strategy).ranks
    assert (failed["error"], failed["message"], failed["code"]) == ("ValueError", "planted", 1)
    assert (main["error"], main["code"]) == ("DistributedError", 1)
    assert main["message"].splitlines() == [
        "rank 1 failed: ValueError: planted",
        "  in the trial of test before training, batch 0, epoch=0 iter=0 rank=1",
        "  one batch of every validation and test set is tried before the first step; to train without this trial, set "
        "trial_batch: false (in Python: Runner(..., trial_batch=False))",
    ]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_trial_that_a_hook_may_save_in_one_process_is_a_warning_of_all(tmp_path: Path, strategy: str) -> None:
    done = run_case("failing_trial", tmp_path, True, strategy)
    assert [rank.get("iter") for rank in done.ranks] == [4, 4], done.output
    lines = (tmp_path / "run" / "run.log").read_text().splitlines()
    place = next(number for number, line in enumerate(lines) if "trial of test" in line)
    assert lines[place].endswith(
        "  warning: the trial of test before training was not possible: rank 1: ValueError: planted"
    )
    assert lines[place + 1] == ("  it may work later, because no hook is called here: prepare at before_test_iter")


def test_a_request_of_one_process_at_the_end_of_training_holds_for_all(tmp_path: Path) -> None:
    done = run_case("late_request", tmp_path)
    assert done.code == 0, done.output
    note = seal.read_note(tmp_path / "run" / "late.pth")
    assert note is not None
    assert (note.step, note.complete) == (4, True)


def test_more_processes_than_samples_are_refused(tmp_path: Path) -> None:
    done = run_case("little_data", tmp_path)
    assert [(rank["code"], rank["message"]) for rank in done.ranks] == [
        (2, "2 processes cannot train together on 1 sample: start at most as many processes as there are samples")
    ] * 2


def test_a_signal_to_a_process_and_its_workers_ends_all_with_a_checkpoint(tmp_path: Path) -> None:
    done = run_case("signaled_workers", tmp_path)
    assert [rank["code"] for rank in done.ranks] == [143, 143], done.output
    (saved,) = (tmp_path / "run").glob("iter_*.pth")
    note = seal.read_note(saved)
    assert note is not None
    assert note.step >= 10


def test_the_runs_of_a_process_share_their_groups(tmp_path: Path) -> None:
    done = run_case("several_runs", tmp_path)
    assert done.code == 0, done.output
    assert [rank["groups"] for rank in done.ranks] == [[3, 3]] * 2  # of torch, for agreement, for files

"""MMEngine's dialect on two processes: the same result as the original, and hookline's agreement and failures."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from tests.distributed.mmengine_cases import OURS
from tests.distributed.ranks import Outcome, run

run_case = functools.partial(run, module="mmengine_cases")


def files(folder: Path) -> list[str]:
    """Return the checkpoints of a run."""
    return sorted(path.name for path in folder.rglob("*.pth"))


def results(done: Outcome) -> list[dict[str, Any]]:
    """Return what the processes of a case that must not fail returned."""
    assert done.code == 0, done.output
    return done.ranks


def test_training_ends_in_the_same_bits_as_with_the_original(tmp_path: Path) -> None:
    theirs = results(run_case("train", tmp_path / "theirs", "mmengine", [1, 2]))
    ours = results(run_case("train", tmp_path / "ours", OURS, [1, 2]))
    samples = [float(index) for index in range(9)]
    for rank in (0, 1):
        assert ours[rank]["dist"] == theirs[rank]["dist"] == [rank, 2, rank == 0]
        for accumulate in ("1", "2"):
            here, there = ours[rank][accumulate], theirs[rank][accumulate]
            for key in ("iter", "values", "hash", "rank", "world_size", "seed", "metrics", "computed"):
                assert here[key] == there[key], (rank, accumulate, key)
            assert here["metrics"]["samples"] == [9, 9, 9]  # the repeated tenth sample does not count
            assert here["computed"] == ([samples] * 3 if rank == 0 else [])
        assert (ours[rank]["1"]["syncs"], ours[rank]["2"]["syncs"]) == (9, 6)  # one per update
    assert ours[0]["1"]["hash"] == ours[1]["1"]["hash"]
    assert ours[0]["1"]["timestamp"] == ours[1]["1"]["timestamp"]
    checkpoints = ["epoch_1.pth", "epoch_2.pth", "epoch_3.pth"]
    assert files(tmp_path / "ours" / "1") == files(tmp_path / "theirs" / "1") == checkpoints


def test_a_hook_that_raises_in_one_process_ends_all_and_is_named(tmp_path: Path) -> None:
    done = run_case("act", tmp_path, "raise")
    main, failed = done.ranks
    assert (failed["error"], failed["message"], failed["code"]) == ("ValueError", "planted", 1)
    assert (main["error"], main["code"]) == ("DistributedError", 1)
    first, second = main["message"].splitlines()
    assert first == "rank 1 failed: ValueError: planted"
    assert second.startswith(
        "  in hook Acts, at after_train_iter, epoch=1 iter=3 rank=1 (tests/distributed/mmengine_ca"
    )


def test_a_signal_to_one_process_ends_all_with_a_checkpoint(tmp_path: Path) -> None:
    done = run_case("act", tmp_path, "SIGTERM")
    assert [(found["error"], found["code"]) for found in done.ranks] == [("SystemExit", 143)] * 2
    assert files(tmp_path) == ["epoch_1.pth", "iter_5.pth"]


def test_a_checkpoint_that_one_process_asks_for_is_saved_once(tmp_path: Path) -> None:
    found = results(run_case("act", tmp_path, "save"))
    assert [each["iter"] for each in found] == [9, 9]
    assert files(tmp_path) == ["asked.pth", "epoch_1.pth", "epoch_2.pth", "epoch_3.pth"]

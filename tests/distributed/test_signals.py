"""A signal to one process ends all of them at the same place, with a checkpoint, whatever they are doing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.distributed.ranks import run

MODULE = "signaled"


def files(folder: Path) -> list[str]:
    """Return the checkpoints of a run."""
    return sorted(path.name for path in (folder / "run").glob("*.pth"))


def told(found: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """Return some results of each process."""
    return [tuple(each[name] for name in names) for each in found]


@pytest.mark.parametrize(
    ("batches", "evaluated"),
    [
        ([1000, 1000], [4, 4]),
        ([2, 1000], [2, 4]),  # the main process waits for the other one, and leaves with it
        ([1000, 3], [4, 3]),  # the signal comes in the last batch of the other process
    ],
)
def test_fault_5_a_signal_to_one_process_in_a_validation_ends_all_after_the_same_batch(
    tmp_path: Path, batches: list[int], evaluated: list[int]
) -> None:
    done = run("in_validation", tmp_path, batches, False, module=MODULE)
    assert told(done.ranks, "code", "iter", "evaluated") == [(143, 4, each) for each in evaluated], done.output
    assert files(tmp_path) == ["epoch_1.pth"]


def test_fault_5_a_validation_whose_iteration_is_saved_is_left_and_the_run_resumes_exactly(tmp_path: Path) -> None:
    done = run("in_validation", tmp_path, [1000, 1000], True, module=MODULE)
    assert told(done.ranks, "code", "iter", "evaluated") == [(143, 4, 4)] * 2, done.output
    assert files(tmp_path) == ["epoch_1.pth"]
    resumed = run("in_validation", tmp_path, [3, 3], True, True, module=MODULE)
    assert told(resumed.ranks, "code", "iter", "evaluated") == [(0, 12, 9)] * 2, resumed.output  # it validates again
    straight = run("in_validation", tmp_path / "straight", [3, 3], True, True, module=MODULE)
    assert told(straight.ranks, "hash") == told(resumed.ranks, "hash")


@pytest.mark.parametrize(("batches", "evaluated"), [([1000, 1000], [7, 7]), ([1000, 3], [7, 3])])
def test_fault_5_a_validation_that_cannot_be_left_ends_in_all_processes_after_the_same_batch_before_a_kill(
    tmp_path: Path, batches: list[int], evaluated: list[int]
) -> None:
    done = run("in_validation_with_actor", tmp_path, batches, module=MODULE)
    assert told(done.ranks, "code", "iter", "evaluated") == [(143, 4, each) for each in evaluated], done.output
    assert files(tmp_path) == []
    assert [line[21:] for line in (tmp_path / "run" / "run.log").read_text().splitlines()][-1] == (
        "ended by SIGTERM to rank 1 after iteration 4: the validation took too long, and the state before it is not "
        "saved, because <lambda> takes part in it and may change training; a hook that only looks is left at once if "
        "it declares role = 'observer'; no checkpoint was written yet"
    )


def test_fault_5_a_signal_to_one_process_in_a_long_save_ends_all_right_after_it(tmp_path: Path) -> None:
    done = run("in_save", tmp_path, module=MODULE)
    assert told(done.ranks, "code", "iter") == [(143, 2)] * 2, done.output
    assert files(tmp_path) == ["iter_2.pth"]


def test_a_signal_to_one_process_before_the_first_iteration_ends_all(tmp_path: Path) -> None:
    done = run("in_warmup", tmp_path, module=MODULE)
    assert told(done.ranks, "code", "iter") == [(143, 0)] * 2, done.output
    assert files(tmp_path) == []

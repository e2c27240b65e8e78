"""A loop of the user in several processes: the bits of a Runner, one decision for all, and mistakes that are named."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.distributed import ranks

run = partial(ranks.run, module="session_cases")


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("case", ["ddp", "fsdp"])
def test_the_weights_of_all_processes_are_those_of_a_runner(tmp_path: Path, case: str, accumulate: int) -> None:
    theirs, ours = (run(case, tmp_path / name, own, accumulate) for name, own in (("own", True), ("runner", False)))
    assert (theirs.code, ours.code) == (0, 0), theirs.output + ours.output
    assert [rank["hash"] for rank in theirs.ranks] == [rank["hash"] for rank in ours.ranks]
    assert theirs.ranks[0]["hash"] == theirs.ranks[1]["hash"]


def test_own_validations_choose_the_best_checkpoint_and_a_resume_is_exact(tmp_path: Path) -> None:
    whole = run("reports", tmp_path / "whole")
    assert whole.code == 0, whole.output
    failed = run("reports", tmp_path / "failed", True)
    assert [rank["error"] for rank in failed.ranks] == ["DistributedError", "ValueError"]
    resumed = run("reports", tmp_path / "failed", False, True)
    assert resumed.code == 0, resumed.output
    assert [rank["hash"] for rank in resumed.ranks] == [rank["hash"] for rank in whole.ranks]
    assert resumed.ranks[0]["found"] == whole.ranks[0]["found"][-len(resumed.ranks[0]["found"]) :]
    names = [sorted(path.name for path in (tmp_path / name / "run").glob("*.pth")) for name in ("whole", "failed")]
    assert names[0] == names[1]
    assert len([name for name in names[0] if name.startswith("best_size_epoch_")]) == 1


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("model", "did not call run.model; call it, not your model, because several processes share their gradients"),
        ("skip", "with several processes, run.skip(reason) could leave the others waiting; let a hook call"),
        ("report", "the metric 'score' of val differs between the processes (rank 0: 0, rank 1: 1)"),
        ("break", "the loop was left in rank 0, but not in rank 1; let all processes do it after the same step, or "),
    ],
)
def test_a_mistake_that_only_several_processes_notice_is_named(tmp_path: Path, how: str, message: str) -> None:
    done = run("misused", tmp_path, how)
    assert done.code == 1
    assert all(message in rank["message"] for rank in done.ranks), done.ranks


def test_a_stop_in_one_process_ends_the_loop_in_all(tmp_path: Path) -> None:
    done = run("acts", tmp_path, "stop")
    assert done.code == 0, done.output
    assert done.ranks[0]["iter"] == done.ranks[1]["iter"] < 12
    assert [rank["stopped"][0] for rank in done.ranks] == ["enough (rank 1)", "enough"]


def test_a_signal_to_one_process_ends_the_loop_in_all_with_a_checkpoint(tmp_path: Path) -> None:
    done = run("acts", tmp_path, "SIGTERM")
    assert [rank["code"] for rank in done.ranks] == [143, 143], done.output
    assert len(list((tmp_path / "run").glob("iter_*.pth"))) == 1

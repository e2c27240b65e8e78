"""Processes that do different things at the same iteration: they go on together, or an error says why not."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.distributed.ranks import run

run_case = partial(run, module="differing")


def test_a_hook_that_only_one_process_has_makes_no_process_wait(tmp_path: Path) -> None:
    done = run_case("hooks_of_one_process", tmp_path)
    assert done.code == 0, done.output
    first, second = done.ranks
    assert first["OnMain"] == second["OnMain"] == first["Fails"] == second["Fails"]


def test_records_of_one_process_extremes_and_values_that_a_resume_restores(tmp_path: Path) -> None:
    done, alone = run_case("records", tmp_path / "two"), run_case("records", tmp_path / "one", nproc=0)
    assert (done.code, alone.code) == (0, 0), done.output
    whole, resumed = done.ranks[0]["whole"], done.ranks[0]["resumed"]
    steps = [(each["step"], "val/loss" in each) for each in whole if "step" in each]
    assert steps == [(4, False), (6, True), (10, False), (12, True), (12, False)]
    assert whole == resumed
    assert [each["rare"] for each in whole if "rare" in each] == [5.0, 5.0]
    assert [each["val/rank"] for each in whole if "val/rank" in each] == [5.0, 5.0]
    for ours, theirs in zip(whole, alone.ranks[0]["whole"], strict=False):
        for name in ("train/loss", "train/all", "val/loss", "last"):
            if name in ours:
                assert ours[name] == pytest.approx(theirs[name], abs=1e-6)
        if "train/worst" in ours:  # of the batches of all processes, which are smaller than those of one process
            assert ours["train/least"] < theirs["train/least"] <= theirs["train/worst"] < ours["train/worst"]


@pytest.mark.parametrize(
    ("case", "rank", "error", "message"),
    [
        ("logger_fails", 1, "ValueError", "only here"),
        (
            "skips_in_the_step",
            1,
            "HookError",
            "with several processes, skip_step can only be called by a hook at before_train_iter, before_backward, "
            "after_backward or before_optimizer_step, because the processes agree there",
        ),
        (
            "calls_back",
            1,
            "HookError",
            "request_save: only the main process writes, so it cannot call back 'done' or 'failed' of another one; ask "
            "in the main process (runner.rank == 0), or at the same iteration in all of them (together=True)",
        ),
        (
            "metrics",
            0,
            "DistributedError",
            "the metric 'own' of val differs between the processes (rank 0: 1, rank 1: -1), so they would decide "
            "differently; an object with compute() has to sum up over the processes itself, as torchmetrics objects "
            "do",
        ),
        (
            "rates",
            0,
            "DistributedError",
            "the optimizer differs between rank 0 and rank 1, but all processes must train the same:\n"
            "  rank 0: SGD lr=0.1 momentum=0 dampening=0 weight_decay=0 nesterov=False maximize=False "
            "differentiable=False parameters=4\n"
            "  rank 1: SGD lr=1.1 momentum=0 dampening=0 weight_decay=0 nesterov=False maximize=False "
            "differentiable=False parameters=4",
        ),
    ],
)
def test_a_call_that_the_other_process_cannot_follow_is_an_error(
    tmp_path: Path, case: str, rank: int, error: str, message: str
) -> None:
    done = run_case(case, tmp_path)
    assert (done.ranks[rank].get("error"), done.ranks[rank].get("message")) == (error, message), done.output


def test_a_run_after_a_failure_says_that_the_processes_are_disconnected(tmp_path: Path) -> None:
    done = run_case("again", tmp_path)
    gone = "this process was disconnected from the others after a failure ({}); start all of them again"
    assert [rank["messages"] for rank in done.ranks] == [
        ["rank 1 failed: ValueError: planted", gone.format("rank 1 failed: ValueError: planted")],
        ["planted", gone.format("planted")],
    ]

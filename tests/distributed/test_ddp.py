"""Two processes with DDP: the same result as one, and one decision for all."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline.checkpoint import store
from hookline.strategies import STRATEGIES
from tests.distributed.cases import At
from tests.distributed.processes import ROOT, running
from tests.distributed.ranks import run


def apart(one: list[float], two: list[float]) -> float:
    """Return how far two lists of weights are apart."""
    return (torch.tensor(one) - torch.tensor(two)).abs().max().item()


def losses(folder: Path) -> list[float]:
    """Return the losses in the records of a run."""
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return [record["train/loss"] for record in map(json.loads, lines) if "train/loss" in record]


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "single"])  # a group is joined only once
def test_the_contract_of_strategies_holds_in_two_processes(name: str) -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    suite = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/contract/test_strategies.py", "-k", name)
    with running(*launcher, *suite, cwd=ROOT) as command:
        assert command.wait() == 0, command.output()


@pytest.mark.parametrize("samples", [48, 50, 49])  # the last batch is even; uneven; too small for every process
def test_two_processes_train_as_one_does(tmp_path: Path, samples: int) -> None:
    one, two = run("train", tmp_path / "one", samples, nproc=0), run("train", tmp_path / "two", samples)
    assert (one.code, two.code) == (0, 0), two.output
    assert two.ranks[0]["hash"] == two.ranks[1]["hash"]
    assert [each["iter"] for each in (*one.ranks, *two.ranks)] == [-(-samples // 16) * 3] * 3
    assert apart(one.ranks[0]["weights"], two.ranks[0]["weights"]) < 1e-6
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-6)
    for mine, theirs in zip(one.ranks[0]["metrics"], two.ranks[1]["metrics"], strict=True):
        assert mine["accuracy"] == theirs["accuracy"]
        assert mine["loss"] == pytest.approx(theirs["loss"], abs=1e-6)
    assert sorted(path.name for path in (tmp_path / "two" / "run").iterdir()) == sorted(
        path.name for path in (tmp_path / "one" / "run").iterdir()
    )


def test_an_accumulation_window_is_the_same_in_two_processes_even_if_its_last_batch_is_uneven(tmp_path: Path) -> None:
    whole = run("train", tmp_path / "whole", 50, 1, nproc=0)
    windows = [run("train", tmp_path / f"{nproc}", 50, 4, nproc=nproc) for nproc in (0, 2)]
    assert [each.code for each in windows] == [0, 0], windows[1].output
    for each in windows:
        assert apart(each.ranks[0]["weights"], whole.ranks[0]["weights"]) < 1e-6
    for name in ("0", "2"):
        assert losses(tmp_path / name) == pytest.approx(losses(tmp_path / "whole"), abs=1e-6)


@pytest.mark.parametrize("said", [False, True])
def test_batches_that_count_by_tokens_train_two_processes_as_one(tmp_path: Path, said: bool) -> None:
    whole = run("by_tokens", tmp_path / "whole", 1, said, nproc=0)
    for accumulate in (1, 2):
        two = run("by_tokens", tmp_path / f"two-{accumulate}", accumulate, said)
        assert (whole.code, two.code) == (0, 0), two.output
        assert apart(two.ranks[0]["weights"], whole.ranks[0]["weights"]) < 1e-6
        assert two.ranks[1]["losses"] == pytest.approx(whole.ranks[0]["losses"], abs=1e-6)


def test_a_checkpoint_of_two_processes_is_resumed_by_one_and_back(tmp_path: Path) -> None:
    straight = run("train", tmp_path / "straight", 48, 1, 3)
    for epochs, nproc in ((1, 2), (2, 0), (3, 2)):
        done = run("train", tmp_path / "changing", 48, 1, epochs, True, nproc=nproc)
        assert done.code == 0, done.output
    assert apart(straight.ranks[0]["weights"], done.ranks[1]["weights"]) < 1e-6
    for epochs in (1, 2, 3):
        again = run("train", tmp_path / "again", 48, 1, epochs, True)
    assert [found["hash"] for found in again.ranks] == [found["hash"] for found in straight.ranks]
    assert again.ranks[1]["metrics"] == straight.ranks[1]["metrics"][1:]  # the missed one is repeated
    saved = store.read(tmp_path / "changing" / "run" / "epoch_3.pth", sealed=True)
    assert (saved["meta"]["world_size"], len(saved["ranks"]), list(saved["ranks"][0])) == (
        2,
        1,
        ["message_hub", "hooks", "rng"],
    )


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("stop", {"iter": 7, "stopped": [["enough (rank 1)", "At"], ["enough", "At"]]}),
        ("validate", {"iter": 12, "validated": [4, 7, 8, 12]}),
        ("save", {"iter": 12}),
    ],
)
def test_all_processes_do_at_the_same_iteration_what_one_asks_for(
    tmp_path: Path, what: str, expected: dict[str, Any]
) -> None:
    done = run("act", tmp_path, what)
    assert done.code == 0, done.output
    for rank, found in enumerate(done.ranks):
        assert found["iter"] == expected["iter"]
        assert found["stopped"] == expected.get("stopped", [["", ""], ["", ""]])[rank]
        assert found["validated"] == expected.get("validated", [4, 8, 12] if what != "stop" else [4])
    names = {path.name for path in (tmp_path / "run").glob("*.pth")}
    assert ("iter_7.pth" in names) is (what != "validate")


def test_a_signal_to_one_process_ends_all_with_a_checkpoint(tmp_path: Path) -> None:
    done = run("act", tmp_path, "SIGTERM")
    assert [(found["error"], found["code"]) for found in done.ranks] == [("SystemExit", 143)] * 2
    assert sorted(path.name for path in (tmp_path / "run").glob("*.pth")) == ["epoch_1.pth", "iter_7.pth"]


def test_fault_9_a_hook_that_raises_in_one_process_ends_all_and_is_named(tmp_path: Path) -> None:
    done = run("act", tmp_path, "raise")
    assert done.code == 1
    main, failed = done.ranks
    assert (failed["error"], failed["message"]) == ("ValueError", "planted")
    assert main["error"] == "DistributedError"
    line = inspect.getsourcelines(At.after_train_iter)[1]
    assert main["message"].splitlines() == [
        "rank 1 failed: ValueError: planted",
        f"  in hook At, at after_train_iter, epoch=1 iter=5 rank=1 (tests/distributed/cases.py:{line})",
    ]
    assert main["code"] == 1


def test_a_batch_that_one_process_skips_is_skipped_in_all(tmp_path: Path) -> None:
    done = run("bad_loss", tmp_path)
    assert done.code == 0, done.output
    assert [found["updates"] for found in done.ranks] == [11, 11]
    assert done.ranks[0]["hash"] == done.ranks[1]["hash"]


def test_a_killed_process_is_named(tmp_path: Path) -> None:
    done = run("act", tmp_path, "SIGKILL")
    assert done.ranks[1] == {}
    assert (done.ranks[0]["error"], done.ranks[0]["code"]) == ("DistributedError", 6)
    assert done.ranks[0]["message"] == "rank 1 was killed, or ended without a reason\n  seen by rank 0"


def test_a_hook_of_the_main_process_runs_only_there_and_its_requests_hold_for_all(tmp_path: Path) -> None:
    done = run("on_main", tmp_path, "")
    assert done.code == 0, done.output
    assert [(found["calls"], found["iter"]) for found in done.ranks] == [(7, 7), (0, 7)]


@pytest.mark.parametrize(
    ("talk", "busy"), [("barrier", False), ("barrier", True), ("strategy", False), ("group", False)]
)
def test_a_hook_of_the_main_process_that_talks_to_the_others_is_an_error_and_does_not_hang(
    tmp_path: Path, talk: str, busy: bool
) -> None:
    done = run("on_main", tmp_path, talk, busy)  # the reason waits for a process that is busy
    assert [found["code"] for found in done.ranks] == [6, 6]
    assert done.ranks[0]["message"] == (
        "hook OnMain runs only in the main process (ranks = 'main'), so it cannot exchange anything with the others; "
        "set ranks = 'all', or use runner.rank and runner.world_size"
    )
    assert done.ranks[1]["message"].startswith(f"rank 0 failed: {done.ranks[0]['message']}\n  in hook OnMain, at")


@pytest.mark.parametrize(
    ("what", "lines"),
    [
        (
            "samples",
            [
                "the number of samples differs between rank 0 and rank 1, but all processes must train the same:",
                "  rank 0: 50",
                "  rank 1: 51",
            ],
        ),
        (
            "hooks",
            [
                "the plan differs between rank 0 and rank 1, but all processes must train the same:",
                "  rank 0: LoggerHook (priority BELOW_NORMAL (60))",
                "  rank 1: OnMain (priority NORMAL (50))",
            ],
        ),
        (
            "model",
            [
                "the model differs between rank 0 and rank 1, but all processes must train the same:",
                "  rank 0: 0.weight (16, 8)",
                "  rank 1: 0.weight (17, 8)",
            ],
        ),
    ],
)
def test_processes_that_would_train_different_things_are_refused(tmp_path: Path, what: str, lines: list[str]) -> None:
    done = run("different", tmp_path, what)
    assert [found["code"] for found in done.ranks] == [6, 6]
    assert [found["message"].splitlines() for found in done.ranks] == [lines, lines]


def test_a_static_graph_with_an_accumulation_window_is_refused_before_training(tmp_path: Path) -> None:
    done = run("different", tmp_path, "static_graph")
    assert [found["code"] for found in done.ranks] == [2, 2]
    assert done.ranks[0]["message"] == (
        "the strategy 'ddp': static_graph expects every backward pass to sync the gradients, but accumulate=2 holds "
        "this back inside a window; remove one of them"
    )


@pytest.mark.parametrize("kind", ["batches", "streams"])
def test_fault_10_if_a_process_has_fewer_batches_every_pass_ends_with_it(tmp_path: Path, kind: str) -> None:
    done = run("different", tmp_path, kind)
    assert done.code == 0, done.output
    assert [found["iter"] for found in done.ranks] == [12, 12]
    assert done.ranks[0]["hash"] == done.ranks[1]["hash"]


def test_fault_8_killed_processes_restart_and_end_in_the_state_of_the_uninterrupted_run(tmp_path: Path) -> None:
    straight = run("killed", tmp_path / "straight", [])
    iterations = list(range(2, 32, 3))
    killed = run("killed", tmp_path / "killed", iterations, restarts=len(iterations))
    assert (straight.code, killed.code) == (0, 0), killed.output
    assert [found["attempt"] for found in killed.ranks] == [10, 10]
    assert [found["hash"] for found in killed.ranks] == [found["hash"] for found in straight.ranks]

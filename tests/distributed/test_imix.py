"""iMIX's dialect on two processes."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from tests.distributed.ranks import assert_planted, run


def test_two_processes_train_as_one_with_the_same_batches(tmp_path: Path) -> None:
    one = run("train", tmp_path / "one", nproc=0, module="imix_cases")
    two = run("train", tmp_path / "two", module="imix_cases")
    assert (one.code, two.code) == (0, 0), two.output
    first, second = two.ranks
    assert first["hash"] == second["hash"]
    for key in ("weights", "own"):
        assert first[key] == second[key]
        assert (torch.tensor(first[key]) - torch.tensor(one.ranks[0][key])).abs().max() < 1e-6, key
    files = [
        *("Sequential_epoch0_model.pth", "Sequential_epoch1_model.pth", "Sequential_model_final.pth"),
        *("best_result.pth", "eval_result.json", "hooks.json", "metrics.json", "model_best.pth"),
    ]
    for found in (*one.ranks, *two.ranks):
        assert (found["files"], found["counted"], found["iter"]) == (files, [10, 10], 10)
        assert found["best"] == {"score": 2.0}  # what the main process has measured holds for all
    results = (tmp_path / "two" / "run" / "eval_result.json").read_text().splitlines()
    assert [json.loads(line)["score"] for line in results] == [2.0, 1.0]
    assert (one.ranks[0]["refused"], first["refused"], second["refused"]) == ("", REFUSED, REFUSED)


REFUSED = (
    "a batch_processor calls the model itself, so the gradients of 2 processes would not be averaged; use a "
    "loss_fn(model, batch) instead, and call the model that it gets"
)


def test_a_hook_that_raises_in_one_process_ends_all_and_is_named(tmp_path: Path) -> None:
    done = run("fail", tmp_path, module="imix_cases")
    assert_planted(done, "Acts, at after_train_iter, epoch=0 iter=3 rank=1 (tests/distributed/imix_cases.py")

"""Hooks that only matter with several processes, and the number of messages, with two processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.ranks import run


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    done = run("all_of_it", Path(tmp_path_factory.mktemp("hooks")), module="hook_cases")
    assert done.code == 0, done.output
    return done.ranks


def test_buffers_that_differ_are_their_mean_after_every_epoch(ranks: list[dict[str, Any]]) -> None:
    for epoch in (0, 1):
        here, there = (torch.tensor(each["buffers"]["before"][epoch], dtype=torch.float64) for each in ranks)
        first, second = (each["buffers"]["after"][epoch] for each in ranks)
        assert first == second
        assert not here.equal(there)
        assert torch.allclose(torch.tensor(first, dtype=torch.float64), (here + there) / 2, rtol=0, atol=1e-7)


def test_a_sampler_of_the_user_gets_the_epoch_in_every_process(ranks: list[dict[str, Any]]) -> None:
    first, second = (each["epochs"] for each in ranks)
    assert first["epochs"] == second["epochs"] == [0, 1, 2]
    for ours, theirs in zip(first["orders"], second["orders"], strict=True):
        assert sorted(ours + theirs) == list(range(16))
    assert first["orders"][0] != first["orders"][1]


def test_a_plain_loader_has_another_order_in_every_epoch_and_each_sample_once(ranks: list[dict[str, Any]]) -> None:
    first, second = (each["epochs"]["read"] for each in ranks)
    for ours, theirs in zip(first, second, strict=True):
        assert sorted(ours + theirs) == list(range(16))
    assert first[0] != first[1]


def test_gradients_are_sent_once_per_update_not_once_per_batch(ranks: list[dict[str, Any]]) -> None:
    for each in ranks:
        assert (each["1"]["messages"], each["1"]["updates"], each["1"]["iter"]) == (4, 4, 4)
        assert (each["4"]["messages"], each["4"]["updates"], each["4"]["iter"]) == (4, 4, 16)
    assert ranks[0]["4"]["hash"] == ranks[1]["4"]["hash"]


def steps(last: int) -> list[list[Any]]:
    """Return what a run of epochs with four iterations writes."""
    found = []
    for step in range(1, last + 1):
        found += [[step, "train"], [step, "own"], *([[step, "val"]] if step % 4 == 0 else [])]
    return found


def test_records_that_wait_for_their_means_keep_their_order_and_are_part_of_checkpoints(tmp_path: Path) -> None:
    done = run("records", tmp_path, module="hook_cases")
    assert done.code == 0, done.output
    assert (done.ranks[0]["whole"], done.ranks[0]["resumed"]) == (steps(8), steps(8))


def test_records_that_wait_when_another_process_fails_are_written(tmp_path: Path) -> None:
    done = run("failing_records", tmp_path, module="hook_cases")
    assert done.code == 0, done.output
    assert done.ranks[0]["records"] == steps(6)

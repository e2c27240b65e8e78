"""Hooks that watch modules, with two processes: the same bits with and without, and the numbers of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.distributed.module_cases import STRATEGIES
from tests.distributed.ranks import assert_planted, run

MODULES = ("0", "1.inner", "1", "2.inner", "2", "3", "4", "model")
STATISTICS = ("mean", "std", "absmax", "norm", "zeros", "nonfinite")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    done = run("watched", Path(tmp_path_factory.mktemp("modules")), module="module_cases")
    assert done.code == 0, done.output
    return done.ranks


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_weights_and_the_random_numbers_are_the_same_with_and_without(
    ranks: list[dict[str, Any]], strategy: str
) -> None:
    for rank in ranks:
        plain, watched, resumed = (rank[strategy][name] for name in ("without", "with", "resumed"))
        assert (watched["iter"], plain["iter"]) == (12, 12)
        assert (watched["hash"], watched["drawn"]) == (plain["hash"], plain["drawn"])
        assert resumed["hash"] == plain["hash"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_process_records_its_own_numbers_and_a_record_has_the_means(
    ranks: list[dict[str, Any]], strategy: str
) -> None:
    first, second = (rank[strategy]["with"]["numbers"] for rank in ranks)
    names = {
        f"train/{kind}/{name}/{number}"
        for kind in ("activations", "gradients")
        for name in MODULES
        for number in STATISTICS
    }
    assert first.keys() == second.keys() == names
    assert first != second
    whole, resumed = ranks[0][strategy]["records"]
    assert whole == [
        {name: pytest.approx((first[name][number] + second[name][number]) / 2, rel=1e-12) for name in first}
        for number in range(3)
    ]
    assert resumed == whole


def test_a_sharded_model_shows_the_numbers_of_the_whole_one(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        ddp, fsdp = (rank[strategy]["with"]["numbers"] for strategy in ("ddp", "fsdp"))
        assert fsdp == {name: pytest.approx(values, rel=1e-3, abs=1e-5) for name, values in ddp.items()}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_hook_of_the_main_process_watches_there_alone(ranks: list[dict[str, Any]], strategy: str) -> None:
    main, other = (rank[strategy]["on_main"] for rank in ranks)
    assert main == [[iteration, name, 4] for iteration in (3, 7, 11) for name in ("1", "1.inner")]
    assert other == []


def test_a_failing_watch_is_named_to_the_other_process(tmp_path: Path) -> None:
    done = run("failing", tmp_path, module="module_cases")
    assert_planted(done, "Fails, at the forward pass of module '1.inner' (Linear, call 0), epoch=0 iter=2 rank=1")

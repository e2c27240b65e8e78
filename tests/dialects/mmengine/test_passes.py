"""Samplers of projects are read as torch's DataLoader reads them, and can be resumed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Sampler

from hookline.dialects.mmengine.dataset import build_dataloader

DATA = list(range(7))


class Estimate(Sampler[int]):
    """Yields more or fewer samples than its length says."""

    def __init__(self, dataset: Any, yields: int) -> None:
        self.dataset, self.yields = dataset, yields
        self.ended = 0

    def __iter__(self) -> Iterator[int]:
        yield from (index % 7 for index in range(self.yields))
        self.ended += 1

    def __len__(self) -> int:
        return 7


class Endless(Sampler[int]):
    """Never ends, as mmdet's MultiSourceSampler, and goes on where the last pass stopped."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.numbers = itertools.cycle(range(7))

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from [next(self.numbers) for _ in range(3)]

    def __len__(self) -> int:
        return 7


class Moving(Sampler[int]):
    """Has a generator that goes on from one pass to the next, as mmdet's ClassAwareSampler."""

    def __init__(self, dataset: Any, seed: int | None = None) -> None:
        self.dataset = dataset
        self.generator = torch.Generator().manual_seed(seed or 0)

    def __iter__(self) -> Iterator[int]:
        yield from torch.randperm(7, generator=self.generator).tolist()

    def __len__(self) -> int:
        return 7


def loader_of(sampler: Any, **options: Any) -> Any:
    described = {"dataset": DATA, "sampler": sampler, "batch_size": 2, "collate_fn": {"type": list}, **options}
    return build_dataloader(described, seed=3)


def as_torch_reads(sampler: Any, passes: int) -> list[list[list[int]]]:
    loader: Any = DataLoader(DATA, batch_size=2, sampler=sampler, collate_fn=list)  # type: ignore[arg-type]
    return [list(loader) for _ in range(passes)]


@pytest.mark.parametrize("yields", [5, 7, 9])
def test_a_sampler_runs_to_its_end_whatever_its_length_says(yields: int) -> None:
    loader = loader_of({"type": Estimate, "yields": yields})
    assert [list(loader.iterate(epoch)) for epoch in range(2)] == as_torch_reads(Estimate(DATA, yields), 2)
    assert loader.sampler.ended == 2


@pytest.mark.parametrize("kind", [Moving, Endless])
def test_a_sampler_with_a_memory_can_be_resumed_at_any_batch(kind: Any) -> None:
    whole = loader_of({"type": kind})
    passes = [list(whole.iterate(epoch)) for epoch in range(3)]
    resumed = loader_of({"type": kind})
    assert list(resumed.iterate(2, 1)) == passes[2][1:]
    if kind is Moving:
        assert passes == as_torch_reads(Moving(DATA, 3), 3)
    else:
        endless: Any = DataLoader(DATA, batch_size=2, sampler=Endless(DATA), collate_fn=list)  # type: ignore[arg-type]
        assert [batch for each in passes for batch in each] == list(itertools.islice(endless, 12))


def test_a_trial_of_a_pass_does_not_move_a_sampler_on() -> None:
    whole, tried = loader_of({"type": Moving}), loader_of({"type": Moving})
    assert list(tried.iterate_once(0)) == list(whole.iterate(0))[:1]
    assert [list(tried.iterate(epoch)) for epoch in (0, 1)] == [list(whole.iterate(epoch)) for epoch in (0, 1)]

"""Shares of loaders with their own samplers: every batch once, in one order, whatever else draws random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from hookline.data.batches import Batches
from hookline.data.sharing import compared, first_indices, order_of
from hookline.data.sources import is_shared, shared

DATA: Any = range(23)


class Reversed:
    """A batch sampler of a user, without a base class."""

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[number, number - 1] for number in range(22, 0, -2)])

    def __len__(self) -> int:
        return 11


LOADERS: dict[str, Any] = {
    "weights": lambda: DataLoader(DATA, 4, sampler=WeightedRandomSampler([1.0] * 23, 23)),
    "replacement": lambda: DataLoader(DATA, 4, sampler=RandomSampler(DATA, replacement=True, num_samples=90)),
    "subset": lambda: DataLoader(DATA, 4, sampler=SubsetRandomSampler(range(3, 20))),
    "own batches": lambda: DataLoader(DATA, batch_sampler=Reversed()),
}


def read(loader: Any, seed: int = 3) -> list[list[int]]:
    """Return the batches of a pass, between which somebody draws random numbers."""
    found: list[list[int]] = []
    for batch, _ in Batches(loader, seed=seed):
        torch.rand(len(found) + 1)
        found.append(batch.tolist())
    return found


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("processes", [2, 3])
def test_the_processes_together_read_the_batches_of_one_order(name: str, processes: int) -> None:
    shares = []
    for rank in range(processes):
        torch.manual_seed(rank)  # as each process has its own numbers
        shares.append(read(shared(LOADERS[name](), rank, processes, pad=False)))
    together = [batch for step in zip_longest(*shares) for batch in step if batch is not None]
    torch.manual_seed(17)
    whole = shared(LOADERS[name](), 0, 2, pad=False)
    other = shared(LOADERS[name](), 1, 2, pad=False)
    assert together == [batch for step in zip_longest(read(whole), read(other)) for batch in step if batch is not None]
    if name != "replacement":  # in one process, such a sampler draws from the numbers of the training
        assert together == read(LOADERS[name]())


def test_all_processes_get_as_many_batches_to_train_on_and_a_repeated_one_has_no_samples() -> None:
    loaders: list[Any] = [shared(LOADERS["own batches"](), rank, 3, pad=True) for rank in range(3)]
    assert [len(loader) for loader in loaders] == [4, 4, 4]
    last = [read(loader)[-1] for loader in loaders]
    assert last == [[4, 3], [2, 1], [2, 1]]
    batches = [Batches(loader, seed=3) for loader in loaders]
    assert [[each.is_padding(number) for number in (2, 3)] for each in batches] == [
        [False, False],
        [False, False],
        [False, True],
    ]


def test_sharing_twice_is_harmless() -> None:
    once: Any = shared(LOADERS["weights"](), 1, 2, pad=True)
    assert shared(once, 1, 2, pad=True) is once


class Shares(SequentialSampler):
    """A sampler that says that it shares the data itself."""

    shares_data = True


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(DATA, 4, sampler=DistributedSampler(DATA, num_replicas=2, rank=1)),
        DataLoader(DATA, batch_sampler=BatchSampler(Shares(DATA), 4, False)),
    ],
    ids=["DistributedSampler", "shares_data"],
)
def test_a_sampler_that_knows_the_processes_is_left_alone(loader: Any) -> None:
    assert shared(loader, 1, 2, pad=True) is loader
    assert is_shared(loader)


class Stream(IterableDataset[int]):
    """Samples without a length."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


def test_a_stream_is_compared_over_the_processes(caplog: pytest.LogCaptureFixture) -> None:
    loader: DataLoader[int] = DataLoader(Stream(), 2)
    assert shared(loader, 1, 2, pad=True) is loader
    assert not is_shared(loader)
    pairs = list(Batches(loader))
    for other, warned in (("", 0), ("something else", 0), (None, 1)):
        caplog.clear()

        def gather(own: str, other: str | None = other) -> list[str]:
            return [own, own if other is None else other]

        found = list(compared(pairs, "Stream", gather))
        assert ([batch.tolist() for batch, _ in found], len(caplog.messages)) == ([[0, 1], [2, 3], [4]], warned)
    assert caplog.messages[0].startswith(
        "every process reads the same batches from the Stream, so all of them train on the same data. Let it yield "
        "another share in each: itertools.islice(batches, rank, None, world_size)"
    )


def test_looking_at_the_first_indices_changes_nothing() -> None:
    own = torch.Generator().manual_seed(5)
    loader: Any = DataLoader(DATA, 4, sampler=WeightedRandomSampler([1.0] * 23, 23, generator=own))
    before, numbers = own.get_state(), torch.get_rng_state()
    order = shared(loader, 0, 2, pad=True)
    assert order_of(order) is not None
    text = first_indices(order, 0)
    assert text == first_indices(order, 1) != first_indices(shared(LOADERS["subset"](), 0, 2, pad=True), 1)
    assert torch.equal(own.get_state(), before)
    assert torch.equal(torch.get_rng_state(), numbers)

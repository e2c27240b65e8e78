"""Restoring counters, generators and iterators of loaders and models."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Dataset, IterableDataset, Sampler

from hookline.common.untouched import ConsumedError, modules_untouched, untouched


class Noise:
    """A transform with its own generators, and a counter that is none of our business."""

    def __init__(self) -> None:
        self.generators: list[Any] = [random.Random(0), np.random.default_rng(0), np.random.RandomState(0)]
        self.calls = 0

    def __call__(self) -> list[float]:
        self.calls += 1
        return [float(each.random()) for each in self.generators]


class Data(Dataset[Any]):
    """Counts its reads, draws numbers, continues an iterator, and opens a file when it is first read."""

    def __init__(self) -> None:
        self.noise, self.reads, self.following, self.file = Noise(), 0, iter(range(100)), None
        self.generator = torch.Generator().manual_seed(0)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> list[float]:
        self.reads += 1
        self.file = self.file or object()  # type: ignore[assignment]  # stands for an open file
        return [self.reads, next(self.following), *self.noise(), float(torch.rand((), generator=self.generator))]


class Order(Sampler[int]):
    """Begins one place later in every pass."""

    def __init__(self) -> None:
        self.passes = 0

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        return iter([(index + self.passes) % 4 for index in range(4)])

    def __len__(self) -> int:
        return 4


def as_they_are(samples: list[Any]) -> list[Any]:
    return samples


def test_counters_generators_and_iterators_of_data_are_as_before() -> None:
    def build() -> tuple[Data, DataLoader[Any]]:
        data = Data()
        batches = BatchSampler(Order(), 2, drop_last=False)
        return data, DataLoader(ConcatDataset([data, Data()]), batch_sampler=batches, collate_fn=as_they_are)

    data, loader = build()
    with untouched(loader):
        tried = next(iter(loader))
    assert (data.reads, data.noise.calls, data.file is not None) == (0, 2, True)
    first, second = list(loader), list(loader)
    assert first[0] == tried
    assert second[0] != tried
    _, fresh = build()
    assert [list(fresh), list(fresh)] == [first, second]


def test_persistent_workers_of_a_stream_start_from_the_beginning() -> None:
    loader: DataLoader[Any] = DataLoader(Data(), batch_size=None)
    vars(loader)["_iterator"] = None
    with untouched(loader):
        vars(loader)["_iterator"] = object()  # as a loader with persistent workers does
    assert vars(loader)["_iterator"] is None


class Stream(IterableDataset[Any]):
    """Has a generator, which yields every item once."""

    def __init__(self) -> None:
        self.items = (number for number in range(10))

    def __iter__(self) -> Iterator[Any]:
        yield from self.items


def test_data_that_can_be_read_only_once_is_not_read() -> None:
    data = Stream()
    with pytest.raises(ConsumedError) as refused, untouched(DataLoader(data)):
        next(iter(data))
    assert str(refused.value) == "Stream.items is a generator, which yields data once"
    assert list(data) == list(range(10))


def test_counters_of_modules_are_as_before_also_after_an_error() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.phase, self.cache = 0, "first", None

    model = nn.Sequential(Counting(), nn.ReLU())
    inner: Any = model[0]

    def change() -> None:
        inner.calls, inner.phase, inner.cache = 3, "second", "new"
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"), modules_untouched(model):
        change()
    assert (inner.calls, inner.phase, inner.cache) == (0, "first", "new")


class Odd:
    """Answers every question about an attribute."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"asked for {name}")

    def __iter__(self) -> Iterator[int]:
        return iter([1])


def test_objects_with_their_own_rules_are_left_alone() -> None:
    with untouched(Odd()):
        pass
    endless: list[Any] = []
    endless.append(endless)
    data = Data()
    vars(data)["endless"] = endless
    with untouched(data):
        data.reads = 5
    assert data.reads == 0

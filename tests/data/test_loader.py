from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from hookline.common.rng import mix
from hookline.data.digits import SPLITS, Digits, DigitsNet
from hookline.data.loader import Order, ResumableLoader
from hookline.data.transfer import to_device
from hookline.errors import ConfigError


class Noisy(Dataset[Any]):
    """A dataset whose samples draw from all three generators."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, torch.rand(()).item(), random.random(), np.random.rand()], dtype=torch.float64)


def epoch_of(loader: ResumableLoader, epoch: int, start: int = 0) -> list[torch.Tensor]:
    return list(loader.iterate(epoch, start))


def equal(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    return len(ours) == len(theirs) and all(a.equal(b) for a, b in zip(ours, theirs, strict=True))


def test_order_and_randomness_are_a_function_of_seed_epoch_and_index() -> None:
    loader = ResumableLoader(Noisy(), batch_size=3, shuffle=True, seed=5)
    first = epoch_of(loader, 2)
    torch.rand(3), random.random(), np.random.rand()
    assert equal(first, epoch_of(loader, 2))
    assert not equal(first, epoch_of(loader, 3))
    assert sorted(torch.cat(first)[:, 0].tolist()) == list(range(10))
    loader.seed = 6
    assert not equal(first, epoch_of(loader, 2))


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_workers_change_nothing_and_it_starts_at_any_batch(workers: int, persistent: bool) -> None:
    plain = ResumableLoader(Noisy(), batch_size=3, shuffle=True)
    loader = ResumableLoader(Noisy(), batch_size=3, shuffle=True, num_workers=workers, persistent_workers=persistent)
    for epoch in (0, 1):
        assert equal(epoch_of(loader, epoch), epoch_of(plain, epoch))
    assert equal(epoch_of(loader, 1, start=2), epoch_of(plain, 1)[2:])
    assert epoch_of(loader, 1, start=4) == []


def test_reading_in_the_training_process_leaves_its_generators_alone() -> None:
    torch.manual_seed(0), random.seed(0), np.random.seed(0)
    expected = torch.rand(()).item(), random.random(), np.random.rand()
    torch.manual_seed(0), random.seed(0), np.random.seed(0)
    iterator = iter(ResumableLoader(Noisy(), batch_size=3))
    torch.manual_seed(0), random.seed(0), np.random.seed(0)
    next(iterator)
    assert (torch.rand(()).item(), random.random(), np.random.rand()) == expected


def test_length_drop_last_and_order_without_shuffling() -> None:
    data = TensorDataset(torch.arange(10))
    assert len(ResumableLoader(data, 4)) == 3
    loader = ResumableLoader(data, 4, drop_last=True)
    assert len(loader) == 2
    assert [batch[0].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_dataset_without_a_length_and_a_wrong_batch_size_are_refused() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(())

    with pytest.raises(
        ConfigError, match="^a ResumableLoader needs a dataset with a length and items by index, but Stream"
    ):
        ResumableLoader(Stream())
    with pytest.raises(ConfigError, match="^batch_size must be an int of at least 1, not 0$"):
        ResumableLoader(Noisy(), batch_size=0)


def test_mix_separates_similar_numbers_and_is_the_same_on_every_machine() -> None:
    assert mix(0, 0) == 411788715114236230
    assert len({mix(seed, epoch, index) for seed in range(5) for epoch in range(5) for index in range(5)}) == 125
    assert mix(1, 23) != mix(12, 3)


def test_the_digits_are_1797_real_images_in_three_parts_that_do_not_overlap() -> None:
    parts = {split: Digits(split) for split in ("train", "val", "test")}
    assert {split: len(part) for split, part in parts.items()} == {"train": 1079, "val": 359, "test": 359}
    assert sum(end - begin for begin, end in SPLITS.values()) == 1797
    images = torch.cat([part.tensors[0] for part in parts.values()])
    classes = torch.cat([part.tensors[1] for part in parts.values()])
    assert images.shape == (1797, 1, 8, 8)
    assert (images.min().item(), images.max().item()) == (0, 1)
    assert classes.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert DigitsNet()(images[:3]).shape == (3, 10)
    with pytest.raises(ConfigError, match="^Digits: unknown split 'valid'; did you mean 'val'\\?$"):
        Digits("valid")  # type: ignore[arg-type]


def test_batches_of_any_shape_are_moved() -> None:
    from collections import namedtuple

    class Own:
        def to(self, device: Any) -> str:
            return f"own on {device}"

    pair = namedtuple("pair", "a b")
    meta = torch.device("meta")
    moved = to_device({"x": [torch.zeros(2)], "y": (Own(), "text", 3), "z": pair(torch.zeros(1), None)}, meta)
    assert moved["x"][0].device == meta
    assert moved["y"] == ("own on meta", "text", 3)
    assert isinstance(moved["z"], pair)
    assert moved["z"].a.device == meta


class Backwards(Order):
    """An order from the last sample to the first that starts one sample later in every epoch."""

    def batches(self, seed: int, epoch: int, start: int) -> Iterator[list[int]]:
        indices = list(range(len(self.dataset) - 1 - epoch, -1, -1))
        for first in range(start * self.batch_size, len(indices), self.batch_size):
            yield indices[first : first + self.batch_size]


def test_another_order_starts_at_any_batch_too() -> None:
    data = TensorDataset(torch.arange(7))
    order = Backwards(data, batch_size=3, shuffle=False, drop_last=False, seed=0)
    loader = ResumableLoader(data, order=order)
    assert (len(loader), loader.batch_size) == (3, 3)
    assert [batch[0].tolist() for batch in loader.iterate(0)] == [[6, 5, 4], [3, 2, 1], [0]]
    assert [batch[0].tolist() for batch in loader.iterate(0, 1)] == [[3, 2, 1], [0]]
    loader.set_epoch(1)
    assert [batch[0].tolist() for batch in loader] == [[5, 4, 3], [2, 1, 0]]


def test_generators_are_not_seeded_for_a_collate_function_that_draws_no_random_numbers() -> None:
    def drawing(samples: list[Any]) -> Any:
        return torch.rand(1)

    def quiet(samples: list[Any]) -> Any:
        return torch.rand(1)  # its attribute is a lie, which makes the missing seed visible

    quiet.draws_random_numbers = False  # type: ignore[attr-defined]
    for collate, same in ((drawing, True), (quiet, False)):
        loader = ResumableLoader(TensorDataset(torch.arange(2)), collate_fn=collate)
        first, second = (next(loader.iterate(0)) for _ in range(2))
        assert torch.equal(first, second) is same


def test_the_inner_loader_yields_the_batches_that_begin_selects() -> None:
    loader = ResumableLoader(TensorDataset(torch.arange(10)), batch_size=3, shuffle=True, seed=5)
    loader.begin(epoch=2, start=1)
    assert isinstance(loader.inner, DataLoader)
    inner = [batch[0].tolist() for batch in loader.inner]
    assert inner == [batch[0].tolist() for batch in loader.iterate(2, 1)]
    assert len(inner) == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (-1, "must be an int of at least 0, not -1"),
        (1.5, "must be an int of at least 0, not 1.5"),
        (16**1000, "must fit in 64 bits, but has 4001"),
    ],
)
def test_a_number_of_workers_that_makes_no_sense_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ResumableLoader(Digits(), num_workers=given)
    assert str(refused.value) == f"num_workers {message}"

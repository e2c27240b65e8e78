"""How samples are read: together or one by one, and once more if a generator was used that was not seeded."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset

from hookline.common.rng import mix
from hookline.data.loader import ResumableLoader


class Recorded(Dataset[Any]):
    """Samples that draw from Python's generator at the indices in `draws`, and a list of the reads."""

    def __init__(self, *draws: int) -> None:
        self.draws = draws
        self.reads: list[Any] = []

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> float:
        self.reads.append(index)
        return index + (random.random() if index in self.draws else 0.0)


class Together(Recorded):
    """The same samples, which can be read in one call."""

    def __getitems__(self, indices: list[int]) -> list[float]:
        self.reads.append(list(indices))
        return [index + (random.random() if index in self.draws else 0.0) for index in indices]


def drawn(index: int) -> float:
    """Return a sample of epoch 0 that draws."""
    random.seed(mix(0, 0, index))
    return index + random.random()


def test_a_batch_in_which_a_generator_is_used_late_is_read_again() -> None:
    data = Recorded(3, 4)
    batches = [batch.tolist() for batch in ResumableLoader(data, 2).iterate(0)]
    assert data.reads == [0, 1, 2, 3, 2, 3, 4, 5, 6, 7]
    assert batches == [[0, 1], [2, drawn(3)], [drawn(4), 5], [6, 7]]


def test_the_first_batch_is_read_once_whatever_it_draws() -> None:
    data = Recorded(*range(8))
    batches = [batch.tolist() for batch in ResumableLoader(data, 4).iterate(0)]
    assert data.reads == list(range(8))
    assert batches == [[drawn(index) for index in range(4)], [drawn(index) for index in range(4, 8)]]


@pytest.mark.parametrize("subset", [False, True])
def test_samples_that_draw_nothing_are_read_together(subset: bool) -> None:
    data = Together()
    loader = ResumableLoader(Subset(data, range(8)) if subset else data, 4)
    assert [batch.tolist() for batch in loader.iterate(0)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert data.reads == [[0, 1, 2, 3], [4, 5, 6, 7]]


class Changed(Together):
    """The samples of a base class that is read in one call, each of them changed."""

    def __getitem__(self, index: int) -> float:
        return -super().__getitem__(index)


class Forwards:
    """A wrapper that changes samples, and forwards everything else."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> float:
        return -float(self.data[index])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.data, name)


@pytest.mark.parametrize("data", [Changed(), Forwards(Together())])
def test_a_class_that_changes_single_samples_is_read_one_by_one(data: Any) -> None:
    assert next(ResumableLoader(data, 4).iterate(0)).tolist() == [0, -1, -2, -3]


def test_samples_that_draw_are_read_one_by_one_from_then_on() -> None:
    data = Together(3, 6)
    batches = [batch.tolist() for batch in ResumableLoader(data, 2).iterate(0)]
    assert data.reads == [[0, 1], [2, 3], 2, 3, 4, 5, 6, 7]
    assert batches == [[0, 1], [2, drawn(3)], [4, 5], [drawn(6), 7]]


def test_a_dataset_that_says_that_it_draws_is_never_read_together() -> None:
    data = Together()
    data.draws_random_numbers = True  # type: ignore[attr-defined]
    list(ResumableLoader(data, 4).iterate(0))
    assert data.reads == list(range(8))


def test_a_dataset_that_says_that_it_draws_nothing_is_believed() -> None:
    data = Together(3)
    data.draws_random_numbers = False  # type: ignore[attr-defined]
    random.seed(5)
    expected = 3 + random.random()
    random.seed(5)
    assert next(ResumableLoader(data, 4).iterate(0)).tolist() == [0, 1, 2, expected]


def test_a_sample_that_fails_is_named_when_all_are_read_together() -> None:
    class Fails(Together):
        def __getitem__(self, index: int) -> float:
            if index == 2:
                raise ValueError("no file")
            return super().__getitem__(index)

        def __getitems__(self, indices: list[int]) -> list[float]:
            return [self[index] for index in indices]

    with pytest.raises(ValueError, match="^no file") as failed:
        list(ResumableLoader(Fails(), 4).iterate(1))
    assert failed.value.__notes__ == ["reading sample 2 of epoch 1 in the training process"]


def test_a_draw_that_fails_without_its_seed_is_repeated_with_it() -> None:
    class Fails(Recorded):
        def __getitem__(self, index: int) -> float:
            sample = super().__getitem__(index)
            if index == 3 and sample != drawn(3):
                raise ValueError("not seeded")
            return sample

    assert [batch.tolist() for batch in ResumableLoader(Fails(3), 2).iterate(0)][1] == [2, drawn(3)]


def test_tensors_are_selected_without_reading_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    data = TensorDataset(torch.arange(6.0).reshape(3, 2), torch.arange(3))
    monkeypatch.setattr(type(data), "__getitem__", TensorDataset.__getitem__)
    loader = ResumableLoader(Subset(data, [2, 0, 1]), 2)
    (first, classes), (rest, _) = loader.iterate(0)
    assert (first.tolist(), classes.tolist(), rest.tolist()) == ([[4.0, 5.0], [0.0, 1.0]], [2, 0], [[2.0, 3.0]])
    first.zero_()
    assert data.tensors[0].tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]  # a batch is a copy


class Scaled(TensorDataset):
    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [10 * self.tensors[0][index] for index in indices]


def test_a_subclass_that_reads_several_tensors_in_its_own_way_is_asked() -> None:
    for data in (Scaled(torch.arange(3)), Subset(Scaled(torch.arange(3)), [0, 1, 2])):
        assert [batch.tolist() for batch in ResumableLoader(data, 2).iterate(0)] == [[0, 10], [20]]


def test_an_index_without_a_tensor_is_named() -> None:
    with pytest.raises(IndexError) as failed:
        list(ResumableLoader(Subset(TensorDataset(torch.arange(3)), [0, 5]), 2).iterate(0))
    assert failed.value.__notes__[0] == "reading sample 1 of epoch 0 in the training process"


def test_normal_numbers_that_are_left_over_stay_for_training() -> None:
    class Draws(Recorded):
        def __getitem__(self, index: int) -> float:
            return float(random.gauss(0, 1) + np.random.randn() + torch.randn(()).item())

    def after(reads: bool) -> tuple[float, float, float]:
        torch.manual_seed(3), random.seed(3), np.random.seed(3)
        random.gauss(0, 1), np.random.randn()
        if reads:
            list(ResumableLoader(Draws(), 2).iterate(0))
        return random.gauss(0, 1), np.random.randn(), torch.randn(()).item()

    assert after(reads=True) == after(reads=False)


def test_a_left_over_normal_number_of_training_is_not_a_part_of_a_sample() -> None:
    class Draws(Recorded):
        def __getitem__(self, index: int) -> float:
            return random.gauss(0, 1) + np.random.randn() if index == 5 else 0.0

    def read() -> list[list[float]]:
        return [batch.tolist() for batch in ResumableLoader(Draws(), 2).iterate(0)]

    random.seed(1), np.random.seed(1)
    expected = read()
    random.gauss(0, 1), np.random.randn()
    assert read() == expected

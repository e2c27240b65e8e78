"""The samples of runs that began with earlier versions: the recorded digests are those of version 0.1.0's first loader.

A sample must never depend on what the loader has found out about a dataset so far, nor on its workers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from hookline.data.digits import Digits
from hookline.data.loader import ResumableLoader

SAMPLES = 50


def from_torch() -> list[float]:
    """Draw from torch in the ways that use its generator differently."""
    permuted = torch.randperm(5).tolist()
    return [torch.rand(()).item(), *torch.randn(17).tolist(), torch.randn(3).sum().item(), *permuted]


def from_numpy() -> list[float]:
    """Draw from numpy, with a normal number left over."""
    return [np.random.rand(), *np.random.randn(3).tolist(), float(np.random.choice(9)), float(np.random.randint(99))]


def from_python() -> list[float]:
    """Draw from Python's generator, with a normal number left over."""
    return [random.random(), random.gauss(0, 1), float(random.randint(0, 99)), *random.sample(range(9), 3)]


WAYS: tuple[Callable[[], list[float]], ...] = (from_torch, from_numpy, from_python)


class Augmented(Dataset[Any]):
    """Samples that draw from the generators that `uses` selects, by the bits of a number."""

    def __init__(self, uses: Callable[[int], int]) -> None:
        self.uses = uses

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        drawn = [way() if self.uses(index) >> bit & 1 else [0.0] for bit, way in enumerate(WAYS)]
        sample = torch.zeros(40, dtype=torch.float64)
        values = [float(index), *(number for numbers in drawn for number in numbers)]
        sample[: len(values)] = torch.tensor(values, dtype=torch.float64)
        return sample


class InBatches(Augmented):
    """The same data, which can also be read in batches."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [self[index] for index in indices]


class ReadsTheSeed(Augmented):
    """Samples that depend on the seed of torch without a draw, for a generator of their own."""

    def __getitem__(self, index: int) -> torch.Tensor:
        generator = np.random.default_rng(torch.initial_seed() % 2**32)
        return torch.tensor([index, generator.random()], dtype=torch.float64)


class Restores(Augmented):
    """Samples that seed a generator, and put its state back."""

    def __getitem__(self, index: int) -> torch.Tensor:
        state, before = random.getstate(), np.random.get_state()
        random.seed(index), np.random.seed(index)
        values = [index, random.random(), np.random.rand()]
        random.setstate(state), np.random.set_state(before)
        return torch.tensor(values, dtype=torch.float64)


def drawing_collate(samples: list[Any]) -> torch.Tensor:
    """Add noise of all generators to a batch."""
    noise = torch.tensor([torch.rand(()).item(), np.random.randn(), random.gauss(0, 1)], dtype=torch.float64)
    return torch.cat([torch.as_tensor(default_collate(samples)).double().flatten(), noise])


def by_index(index: int) -> int:
    return index % 8


def none(index: int) -> int:
    return 0


def only_torch(index: int) -> int:
    return 1


def only_numpy(index: int) -> int:
    return 2


def only_python(index: int) -> int:
    return 4


def numpy_late(index: int) -> int:
    return 3 if index == 37 else 1


def everything(index: int) -> int:
    return 7


IMAGES = torch.arange(SAMPLES * 12, dtype=torch.float32).reshape(SAMPLES, 3, 2, 2)
TENSORS = (IMAGES, torch.arange(SAMPLES) % 7, torch.arange(SAMPLES) % 3 == 0)

#: The data, and its collate function.
DATA: dict[str, tuple[Callable[[], Any], Any]] = {
    "another subset of generators for each sample": (lambda: Augmented(by_index), None),
    "all generators": (lambda: Augmented(everything), None),
    "torch": (lambda: Augmented(only_torch), None),
    "numpy": (lambda: Augmented(only_numpy), None),
    "random": (lambda: Augmented(only_python), None),
    "numpy in one sample": (lambda: Augmented(numpy_late), None),
    "a collate function that draws": (lambda: Augmented(none), drawing_collate),
    "samples and a collate function that draw": (lambda: Augmented(by_index), drawing_collate),
    "batches that draw": (lambda: InBatches(by_index), None),
    "batches that draw in one sample": (lambda: InBatches(numpy_late), None),
    "batches without a draw": (lambda: InBatches(none), None),
    "a subset of data that draws": (lambda: Subset(Augmented(by_index), range(5, 45)), None),
    "the seed of torch": (lambda: ReadsTheSeed(none), None),
    "the seed of torch, in a subset": (lambda: Subset(ReadsTheSeed(none), range(5, 45)), None),
    "generators that are put back": (lambda: Restores(none), None),
    "tensors": (lambda: TensorDataset(*TENSORS), None),
    "tensors, not contiguous": (lambda: TensorDataset(IMAGES.transpose(1, 2), TENSORS[1]), None),
    "a subset of tensors": (lambda: Subset(TensorDataset(*TENSORS), range(5, 45)), None),
    "tensors and a collate function that draws": (lambda: TensorDataset(IMAGES), lambda samples: torch.rand(2)),
    "the digits": (lambda: Subset(Digits("val"), range(SAMPLES)), None),
}


def digest(batches: list[Any]) -> str:
    """Return a digest of the values, types and shapes of batches."""
    found = blake2b(digest_size=8)

    def add(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found.update(f"{value.dtype}{tuple(value.shape)}".encode() + value.contiguous().numpy().tobytes())
        else:
            found.update(type(value).__name__.encode())
            for entry in value:
                add(entry)

    for batch in batches:
        add(batch)
    return found.hexdigest()


def read(name: str, epoch: int, start: int = 0, workers: int = 0, batch_size: int = 8) -> list[Any]:
    data, collate = DATA[name]
    loader = ResumableLoader(
        data(), batch_size, shuffle=True, num_workers=workers, collate_fn=collate, seed=11, multiprocessing_context=None
    )
    return list(loader.iterate(epoch, start))


#: The digests: a pass, the rest of another one, and all samples in one batch.
RECORDED = {
    "another subset of generators for each sample": ["13816eb386266243", "b14d15d8a14f2609", "9e7a378aa5dbf05c"],
    "all generators": ["5d86c34f4840402d", "4af540ef05d3f454", "8bf8ff6fd42e84c7"],
    "torch": ["210867b703498366", "2041d9de8844e8dd", "37072844e1e42d06"],
    "numpy": ["7e0ba66ac15ce785", "e020218178474f76", "5d2bc6155672ff76"],
    "random": ["599cc4d95fdca177", "907e39536350d403", "ef10b91b237b2a34"],
    "numpy in one sample": ["e03b5866fd204225", "2041d9de8844e8dd", "05c0d4645d7a650a"],
    "a collate function that draws": ["d5f0e6a9f32e6a8f", "f7209545039521d3", "4e14936aa9b2b4da"],
    "samples and a collate function that draw": ["35ec85a3c723a246", "01d3dd65303fddb7", "90cdaa9f36576310"],
    "batches that draw": ["13816eb386266243", "b14d15d8a14f2609", "9e7a378aa5dbf05c"],
    "batches that draw in one sample": ["e03b5866fd204225", "2041d9de8844e8dd", "05c0d4645d7a650a"],
    "batches without a draw": ["cd6c87610c1fbe58", "8a8719fc41a38ddc", "5696c95c49800f92"],
    "a subset of data that draws": ["a47606a8e01ee51c", "ca2f98958f5dec6c", "4730f3e1ea15d3b2"],
    "the seed of torch": ["84d64a903db8536b", "366f8c2c1d68c09b", "150f9ed12324f2ce"],
    "the seed of torch, in a subset": ["9f2a8c89e07468ba", "5ecc1dbcaa8d0962", "73e473bc6c2e6ffe"],
    "generators that are put back": ["eff85d078b49e0e2", "b2c77325832f1503", "587ec1479a293939"],
    "tensors": ["a4619a55e077dddb", "c47b80c304722fbe", "295cba45c4638798"],
    "tensors, not contiguous": ["5dcbf5fe2894faab", "5bc986c6d386cc9d", "f84a43cace1903b3"],
    "a subset of tensors": ["9ec525649c87956b", "6e4a85b03dcffca0", "6e2deb29dc3c0b45"],
    "tensors and a collate function that draws": ["99c1c400997d1d7d", "eb4753ee74bb7652", "6916684b3c827c8d"],
    "the digits": ["40dc65cdea71ab9e", "09cd96fc41c50898", "fc0a93870210c4bb"],
}


@pytest.mark.parametrize("name", DATA)
def test_the_samples_are_those_of_earlier_versions(name: str) -> None:
    found = [digest(read(name, 0)), digest(read(name, 3, start=2)), digest(read(name, 1, batch_size=50))]
    assert found == RECORDED[name]


@pytest.mark.processes
@pytest.mark.parametrize("name", ["another subset of generators for each sample", "numpy in one sample", "tensors"])
def test_workers_read_the_samples_of_earlier_versions(name: str) -> None:
    assert [digest(read(name, 0, workers=2)), digest(read(name, 3, start=2, workers=2))] == RECORDED[name][:2]

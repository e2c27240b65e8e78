"""A loader whose batches are a function of (seed, epoch, index), so that a run can start at any of them.

The order of an epoch depends on (seed, epoch) alone, and what a sample draws at random (torch, numpy, random) on (seed,
epoch, index), whatever the number of workers. `iterate(epoch, start)` begins at a batch without reading those before.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from hookline.errors import ConfigError


class ResumableLoader:
    """Batches of a map-style dataset, in an order that can be taken up anywhere.

        loader = ResumableLoader(dataset, batch_size=64, shuffle=True, num_workers=2)

    Args:
        dataset: Anything with a length and items by index.
        batch_size: Samples of a batch, per process.
        shuffle: Another order every epoch.
        num_workers: Processes that read ahead; 0 reads in the training process.
        drop_last: Leave out a last batch that is not full.
        collate_fn: Makes a batch of samples; torch's own, unless given.
        persistent_workers: Keep the workers from one epoch to the next.
        pin_memory: Put batches where a GPU can fetch them.
        seed: What the order and the samples' random numbers come from; a Runner puts its own here.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int = 1,
        shuffle: bool = False,
        num_workers: int = 0,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        persistent_workers: bool = False,
        pin_memory: bool = False,
        seed: int = 0,
    ) -> None:
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
            raise ConfigError(
                f"a ResumableLoader needs a dataset with a length and items by index, and {type(dataset).__name__} "
                "has none; hand it over in a torch DataLoader of your own"
            )
        self.dataset = dataset
        self.batch_size = batch_size
        self.order = Order(len(dataset), batch_size, shuffle, drop_last, seed)
        self._loader: DataLoader[Any] = DataLoader(
            Seeded(dataset, seed),
            batch_sampler=self.order,
            num_workers=num_workers,
            collate_fn=collate_fn,
            persistent_workers=persistent_workers,
            pin_memory=pin_memory,
        )

    @property
    def seed(self) -> int:
        """What order and samples are a function of, besides the epoch."""
        return self.order.seed

    @seed.setter
    def seed(self, seed: int) -> None:
        self.order.seed = self._loader.dataset.seed = seed  # type: ignore[attr-defined]  # the dataset is a Seeded

    def iterate(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """The batches of an epoch from number `start` on."""
        self.order.epoch, self.order.start = epoch, start
        return iter(self._loader)

    def __iter__(self) -> Iterator[Any]:
        return self.iterate(self.order.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Which epoch a plain `iter(loader)` goes through."""
        self.order.epoch = epoch

    def __len__(self) -> int:
        return self.order.batches


class Order:
    """The batch sampler: lists of (epoch, index), so that a worker knows the epoch of what it reads."""

    def __init__(self, samples: int, batch_size: int, shuffle: bool, drop_last: bool, seed: int) -> None:
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ConfigError(f"batch_size must be an int of at least 1, not {batch_size!r}")
        self.samples = samples
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.start = 0
        self.batches = samples // batch_size if drop_last else -(-samples // batch_size)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return self._batches(self.epoch, self.start)  # bound now: another iterator may be made before this one is used

    def _batches(self, epoch: int, start: int) -> Iterator[list[tuple[int, int]]]:
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(mix(self.seed, epoch))
            order = torch.randperm(self.samples, generator=generator).tolist()
        else:
            order = list(range(self.samples))
        for batch in range(start, self.batches):
            yield [(epoch, index) for index in order[batch * self.batch_size : (batch + 1) * self.batch_size]]

    def __len__(self) -> int:
        return self.batches


class Seeded(Dataset[Any]):
    """A dataset read by (epoch, index); what a sample draws at random depends on these and the seed alone."""

    def __init__(self, dataset: Dataset[Any], seed: int) -> None:
        self.dataset = dataset
        self.seed = seed
        self.draws = type(dataset) is not TensorDataset and getattr(dataset, "draws_random_numbers", True)

    def __getitems__(self, keys: list[tuple[int, int]]) -> list[Any]:
        if not self.draws:
            return [self.dataset[index] for _, index in keys]
        # The states are put back because without workers these are the generators that training draws from.
        state = torch.default_generator.get_state(), random.getstate(), _numpy_state()
        try:
            return [self._item(epoch, index) for epoch, index in keys]
        finally:
            torch.default_generator.set_state(state[0])
            random.setstate(state[1])
            if state[2] is not None:
                sys.modules["numpy"].random.set_state(state[2])

    def _item(self, epoch: int, index: int) -> Any:
        seed = mix(self.seed, epoch, index)
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed % 2**32)
        return self.dataset[index]


def _numpy_state() -> Any:
    return sys.modules["numpy"].random.get_state(legacy=False) if "numpy" in sys.modules else None


def mix(*parts: int) -> int:
    """A seed of 63 bits from several numbers, the same on every machine; neighbours have nothing in common."""
    text = ",".join(str(part) for part in parts).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 1

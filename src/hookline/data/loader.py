"""A loader whose batches are a function of (seed, epoch, index), so that a run can start at any of them.

The order of an epoch depends on (seed, epoch) alone, and what a sample draws at random (torch, numpy, random) on (seed,
epoch, index), whatever the number of workers. `iterate(epoch, start)` begins at a batch without reading those before.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
from collections.abc import Callable, Iterator, Sequence, Sized
from hashlib import blake2b
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate, get_worker_info

from hookline.common.checks import check_int
from hookline.data.workers import WorkerStart
from hookline.errors import ConfigError, DataError, blame

#: What a sample is read by: seed, epoch, index.
Key = tuple[int, int, int]


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
        timeout: How many seconds to wait for a worker's batch; 0 waits for ever.
        prefetch_factor: How many batches each worker reads ahead; torch's own number, unless given.
        worker_init_fn: Called in each worker with its number, before it reads.
        multiprocessing_context: How workers are started: `fork`, `spawn`, `forkserver`.
        seed: What the order and the samples' random numbers come from; a Runner puts its own here.
        order: Another order than in turn or shuffled, with its own batch size: a subclass of Order.
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
        timeout: float = 0,
        prefetch_factor: int | None = None,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        seed: int = 0,
        order: Order | None = None,
    ) -> None:
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
            raise ConfigError(
                f"a ResumableLoader needs a dataset with a length and items by index, and {type(dataset).__name__} "
                "has none; hand it over in a torch DataLoader of your own"
            )
        self.dataset = dataset
        self.order = Order(dataset, batch_size, shuffle, drop_last, seed) if order is None else order
        self.batch_size = self.order.batch_size
        self._worker_start = WorkerStart(worker_init_fn)
        self._loader: DataLoader[Any] = DataLoader(
            Seeded(dataset, collate_fn),
            batch_sampler=self.order,
            num_workers=num_workers,
            collate_fn=_as_it_is,
            persistent_workers=persistent_workers,
            pin_memory=pin_memory,
            timeout=timeout,
            prefetch_factor=prefetch_factor,
            worker_init_fn=self._worker_start,
            multiprocessing_context=multiprocessing_context,
            generator=torch.Generator(),  # making an iterator draws from it, and must not from what training draws from
        )

    @property
    def seed(self) -> int:
        """What order and samples are a function of, besides the epoch."""
        return self.order.seed

    @seed.setter
    def seed(self, seed: int) -> None:
        self.order.seed = seed

    @property
    def inner(self) -> DataLoader[Any]:
        """The torch DataLoader that reads the batches, for a library that has to see one; `begin` says which epoch."""
        return self._loader

    def begin(self, epoch: int, start: int = 0) -> None:
        """Make the next iterator of `inner` give the batches of an epoch from number `start` on."""
        self.order.epoch, self.order.start = epoch, start
        context = self._loader.multiprocessing_context or multiprocessing
        self._worker_start.prepare(context.get_start_method())

    def iterate(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """The batches of an epoch from number `start` on."""
        self.begin(epoch, start)
        return iter(self._loader)

    def __iter__(self) -> Iterator[Any]:
        return self.iterate(self.order.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Which epoch a plain `iter(loader)` goes through."""
        self.order.epoch = epoch

    def __len__(self) -> int:
        return len(self.order)


class Order:
    """The batch sampler: lists of (seed, epoch, index), so that a worker knows what it reads, however old it is.

    A subclass with another `batches` and `__len__` gives another order. What a batch holds has to be a function of
    seed, epoch and number alone, so that a run can be resumed at any of them.
    """

    def __init__(self, dataset: Sized, batch_size: int, shuffle: bool, drop_last: bool, seed: int) -> None:
        check_int("batch_size", batch_size, least=1)
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.seed = seed
        self.epoch = 0
        self.start = 0

    def __iter__(self) -> Iterator[list[Key]]:
        # Bound now: another iterator may be made before this one is used.
        return self._keys(self.seed, self.epoch, self.start)

    def _keys(self, seed: int, epoch: int, start: int) -> Iterator[list[Key]]:
        for indices in self.batches(seed, epoch, start):
            yield [(seed, epoch, index) for index in indices]

    def batches(self, seed: int, epoch: int, start: int) -> Iterator[Sequence[int]]:
        """The indices of each batch of an epoch, from number `start` on."""
        samples = len(self.dataset)
        order: Any = range(samples)
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(mix(seed, epoch))
            order = torch.randperm(samples, generator=generator)
        for batch in range(start, len(self)):
            indices = order[batch * self.batch_size : (batch + 1) * self.batch_size]
            yield indices.tolist() if self.shuffle else indices

    def __len__(self) -> int:
        samples = len(self.dataset)  # asked for again: it may grow between two epochs
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)


class Seeded(Dataset[Any]):
    """A dataset whose batches are read by keys of (seed, epoch, index); what is drawn at random depends on these alone.

    Batches are made in here as well, because that may draw, too. A dataset or a collate function that never does can
    say so with an attribute `draws_random_numbers = False`, and saves the time.
    """

    def __init__(self, dataset: Dataset[Any], collate: Callable[[list[Any]], Any] | None) -> None:
        self.dataset = dataset
        self.collate = default_collate if collate is None else collate
        plain = self.collate is default_collate or not getattr(self.collate, "draws_random_numbers", True)
        quiet = type(dataset) is TensorDataset and plain
        self.draws = not quiet and getattr(dataset, "draws_random_numbers", True)

    def __getitems__(self, keys: list[Key]) -> Any:
        if not self.draws:
            return self.collate([self._item(key) for key in keys])
        # The states are put back because without workers these are the generators that training draws from.
        state = torch.default_generator.get_state(), random.getstate(), _numpy_state()
        try:
            samples = [self._seeded_item(key) for key in keys]
            _seed(mix(*keys[0], 1))
            return self.collate(samples)
        finally:
            torch.default_generator.set_state(state[0])
            random.setstate(state[1])
            if state[2] is not None:
                sys.modules["numpy"].random.set_state(state[2])

    def _seeded_item(self, key: Key) -> Any:
        _seed(mix(*key))
        return self._item(key)

    def _item(self, key: Key) -> Any:
        _, epoch, index = key
        try:
            return self.dataset[index]
        except Exception as error:
            worker = get_worker_info()
            where = "the training process" if worker is None else f"worker {worker.id}"
            blame(error, f"reading sample {index} of epoch {epoch} in {where}", exit_code=DataError.exit_code)
            raise


def _as_it_is(batch: Any) -> Any:
    return batch


def _seed(seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


def _numpy_state() -> Any:
    return sys.modules["numpy"].random.get_state(legacy=False) if "numpy" in sys.modules else None


def mix(*parts: int) -> int:
    """A seed of 63 bits from several numbers, the same on every machine; neighbours have nothing in common."""
    text = ",".join(str(part) for part in parts).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 1

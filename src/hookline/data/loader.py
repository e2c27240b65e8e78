"""A loader whose batches are a function of (seed, epoch, index), so that a run can start at any batch.

The order of an epoch depends on (seed, epoch) alone. The random numbers of a sample (torch, numpy, random) depend on
(seed, epoch, index), for any number of workers. `iterate(epoch, start)` begins at a batch without reading the earlier
ones.
"""

from __future__ import annotations

import copy
import multiprocessing
from collections.abc import Callable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from hookline.common.checks import Guarded, check_int
from hookline.common.numbers import count
from hookline.common.rng import mix
from hookline.data.samples import Key, Seeded
from hookline.data.workers import WorkerStart
from hookline.errors import ConfigError

#: The number of batches whose sizes are kept. Workers read fewer ahead.
KEPT = 10_000


class ResumableLoader(Guarded):
    """A loader for a map-style dataset that can start at any batch of any epoch.

        loader = ResumableLoader(dataset, batch_size=64, shuffle=True, num_workers=2)

    Args:
        dataset: Any object with a length and items by index.
        batch_size: Samples per batch, in each process.
        shuffle: Use a different random order in every epoch.
        num_workers: Processes that read ahead; with 0, the training process reads the data.
        drop_last: Leave out the last batch if it is not full.
        collate_fn: Builds a batch from a list of samples; by default torch's function.
        persistent_workers: Keep the workers from one epoch to the next.
        pin_memory: Put batches into pinned memory, from which a GPU can copy them faster.
        timeout: Seconds to wait for a worker's batch; 0 waits forever.
        prefetch_factor: Batches that each worker reads ahead; by default torch's number.
        worker_init_fn: Called in each worker with the worker's number, before it reads data.
        multiprocessing_context: How to start workers: `fork`, `spawn` or `forkserver`.
        seed: The source of the order and of the samples' random numbers; a Runner sets its own seed here.
        order: A subclass of Order, for an order other than sequential or shuffled; it has its own batch size.
    """

    def __init__(
        self,
        dataset: Any,
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
        _check_dataset(dataset)
        check_int("num_workers", num_workers, least=0)
        self._dataset = dataset
        self.order = Order(dataset, batch_size, shuffle, drop_last, seed) if order is None else order
        #: What was set after the loader was created: the batch size, and the number of samples of a dataset.
        self.replaced: dict[str, int] = {}
        self._worker_start, self._collate = WorkerStart(worker_init_fn), collate_fn
        self._options: dict[str, Any] = {
            "num_workers": num_workers,
            "collate_fn": _return_unchanged,
            "persistent_workers": persistent_workers,
            "pin_memory": pin_memory,
            "timeout": timeout,
            "prefetch_factor": prefetch_factor,
            "worker_init_fn": self._worker_start,
            "multiprocessing_context": multiprocessing_context,
        }
        self._loader = self._make_loader()
        self._creator = ResumableLoader

    def _make_loader(self) -> DataLoader[Any]:
        # Creating an iterator draws a number, which must not come from the generator that training uses.
        generator, data = torch.Generator(), Seeded(self._dataset, self._collate)
        return DataLoader(data, batch_sampler=self.order, generator=generator, **self._options)

    @property
    def batch_size(self) -> int:
        """Return the number of samples per batch, in each process. A new one counts from the next pass on."""
        return self.order.batch_size

    @batch_size.setter
    def batch_size(self, batch_size: int) -> None:
        check_int("batch_size", batch_size, least=1)
        self._refuse_own_order("batch_size")
        self.order.batch_size = self.replaced["batch_size"] = batch_size

    @property
    def dataset(self) -> Any:
        """Return the dataset. A new one is read from the next pass on."""
        return self._dataset

    @dataset.setter
    def dataset(self, dataset: Any) -> None:
        _check_dataset(dataset)
        self._refuse_own_order("dataset")
        self._dataset = self.order.dataset = dataset
        self.replaced["samples"] = len(dataset)
        self._loader = self._make_loader()  # workers that live as long as the loader have the old one

    def _refuse_own_order(self, name: str) -> None:
        if type(self.order).batches is not Order.batches:
            raise ConfigError(
                f"loader.{name} has no effect on the batches of {type(self.order).__name__}, which makes them itself; "
                "replace runner.train_loop.dataloader by a new loader instead"
            )

    def __repr__(self) -> str:
        texts = [f"{count(len(self), 'batch', 'batches')} of {self.batch_size} from {type(self.dataset).__name__}"]
        texts += [f"{len(self.dataset)} samples"]
        texts += ["shuffled"] * bool(getattr(self.order, "shuffle", False))
        texts += [count(self._loader.num_workers, "worker")] * bool(self._loader.num_workers)
        return f"<{type(self).__name__}: {', '.join(texts)}>"

    @property
    def seed(self) -> int:
        """Return the seed of the order and of the samples' random numbers."""
        return self.order.seed

    @seed.setter
    def seed(self, seed: int) -> None:
        self.order.seed = seed

    @property
    def inner(self) -> DataLoader[Any]:
        """Return the torch DataLoader that reads the batches, for libraries that need one; `begin` sets its epoch."""
        return self._loader

    def begin(self, epoch: int, start: int = 0) -> None:
        """Let the next iterator of `inner` yield the batches of an epoch, starting with batch `start`."""
        self.order.epoch, self.order.start = epoch, start
        self._prepare_workers()

    def _prepare_workers(self) -> None:
        context = self._loader.multiprocessing_context or multiprocessing
        self._worker_start.prepare(context.get_start_method())

    def iterate(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """Return an iterator over the batches of an epoch, starting with batch `start`."""
        self.begin(epoch, start)
        return iter(self._loader)

    def iterate_once(self, epoch: int) -> Iterator[Any]:
        """Return an iterator over the first batch of an epoch alone, without any effect on other iterators.

        If the loader has workers, a single new one reads this batch and nothing else. The training process must not
        read it: a file that a dataset opens there would be shared by all workers that are forked later.
        """
        self._prepare_workers()
        inner, keys = self._loader, self.order._keys(self.seed, epoch, 0, {})
        only: DataLoader[Any] = DataLoader(
            inner.dataset,
            batch_sampler=list(islice(keys, 1)),
            num_workers=min(inner.num_workers, 1),
            collate_fn=_return_unchanged,
            pin_memory=inner.pin_memory,
            timeout=inner.timeout,
            worker_init_fn=self._worker_start,
            multiprocessing_context=inner.multiprocessing_context,
            generator=torch.Generator(),
        )
        return iter(only)

    def __iter__(self) -> Iterator[Any]:
        return self.iterate(self.order.epoch)

    def share(self, rank: int, processes: int, pad: bool) -> None:
        """Yield only this process's share of each batch; see `Order.share`."""
        self.order.share(rank, processes, pad)
        self._worker_start.outlasts_signals = processes > 1

    def samples(self, batch: int) -> int | None:
        """Return the number of samples of a batch, if the order knows it. A padded batch has none."""
        return self.order.samples(batch)

    @property
    def samples_of_all(self) -> int | None:
        """Return the number of samples of a full batch in all processes together, if the order knows it."""
        return None if self.order.samples(0) is None else self.batch_size * self.order.processes

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that a plain `iter(loader)` yields."""
        self.order.epoch = epoch

    def __len__(self) -> int:
        return len(self.order)


class Order:
    """The batch sampler: it yields lists of (seed, epoch, index), so that even a persistent worker knows the epoch.

    For another order, override `batches` and `__len__` in a subclass. The content of a batch must depend only on the
    seed, the epoch and the number of the batch, so that a run can resume at any batch. With several processes, the
    subclass returns the share of process `self.rank` of `self.processes`, and says so with `shares_itself`.
    """

    #: True if a subclass with its own `batches` takes care of several processes.
    shares_itself = False
    #: True if a pass of a subclass may have more or fewer batches than its length says.
    length_is_estimate = False

    def __init__(self, dataset: Sized, batch_size: int, shuffle: bool, drop_last: bool, seed: int) -> None:
        check_int("batch_size", batch_size, least=1)
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.seed = seed
        self.epoch = 0
        self.start = 0
        #: The sizes of the newest batches, by number, if a subclass decides on them.
        self.drawn: dict[int, int] = {}
        #: The order of the last iterator, which does not change during a pass.
        self.in_use: Order | None = None
        self.share(0, 1, pad=False)

    def share(self, rank: int, processes: int, pad: bool) -> None:
        """Yield only this process's share of each batch of all processes, which has `batch_size` samples of each.

        The shares are consecutive. In an uneven last batch, they differ by one sample at most. If that batch has fewer
        samples than there are processes, some have none of it. They have one batch less, or, if `pad`, get the first
        sample of it once more, so that all processes have the same number of batches. `samples` does not count it.
        """
        if processes > 1 and type(self).batches is not Order.batches and not self.shares_itself:
            raise ConfigError(
                f"{type(self).__name__} would give every process the same batches; let its `batches` and `__len__` "
                "return the share of process self.rank of self.processes, and set shares_itself = True in the class"
            )
        if pad and processes > 1:
            self._refuse_few_samples(processes)
        self.rank, self.processes, self.pad = rank, processes, pad

    def _refuse_few_samples(self, processes: int) -> None:
        found, together = len(self.dataset), self.batch_size * processes
        refused = f"{processes} processes cannot train together on {count(found, 'sample')}"
        if found < processes:
            raise ConfigError(f"{refused}: start at most as many processes as there are samples")
        if self.drop_last and found < together and type(self).__len__ is Order.__len__:
            raise ConfigError(
                f"{refused}: with drop_last, they need {together} for one batch of {self.batch_size} in each; start "
                "fewer processes, use a smaller batch_size, or leave out drop_last"
            )

    def samples(self, batch: int) -> int | None:
        """Return the number of samples of a batch in this process; None if a subclass decides that."""
        if type(self).batches is not Order.batches:
            return None
        begin, end = self._bounds(batch)
        return end - begin

    def _bounds(self, batch: int) -> tuple[int, int]:
        """Return where this process's share of a batch begins and ends in the batch of all processes."""
        size = self.batch_size * self.processes
        whole = max(0, min(size, len(self.dataset) - batch * size))
        share, more = divmod(whole, self.processes)
        begin = self.rank * share + min(self.rank, more)
        return begin, begin + share + (self.rank < more)

    def __iter__(self) -> Iterator[list[Key]]:
        # Pass the current values: another iterator may be created before this one is used.
        order = copy.copy(self) if type(self).batches is Order.batches else self
        order.drawn, order.in_use = {}, None
        self.in_use = order
        return order._keys(self.seed, self.epoch, self.start, order.drawn)

    def _keys(self, seed: int, epoch: int, start: int, drawn: dict[int, int]) -> Iterator[list[Key]]:
        varies = self.samples(start) is None
        for number, indices in enumerate(self.batches(seed, epoch, start), start):
            keys = [(seed, epoch, index) for index in indices]
            if varies:
                drawn[number] = len(keys)
                drawn.pop(number - KEPT, None)
            yield keys

    def batches(self, seed: int, epoch: int, start: int) -> Iterator[Sequence[int]]:
        """Yield the indices of each batch of an epoch, starting with batch `start`."""
        samples = len(self.dataset)
        order: Any = range(samples)
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(mix(seed, epoch))
            order = torch.randperm(samples, generator=generator)
        for batch in range(start, len(self)):
            begin, end = self._bounds(batch)
            if begin == end:  # only the last batch of a pass, for which `pad` is set
                begin, end = 0, 1
            first = batch * self.batch_size * self.processes
            indices = order[first + begin : first + end]
            yield indices.tolist() if self.shuffle else indices

    def __len__(self) -> int:
        size, samples = self.batch_size * self.processes, len(self.dataset)  # the dataset may grow between two epochs
        whole, rest = divmod(samples, size)
        has_share = self.pad or self.rank < rest
        return whole + (rest > 0 and not self.drop_last and has_share)

    @property
    def is_empty(self) -> bool:
        """Return whether no process has a batch."""
        if type(self).__len__ is not Order.__len__:
            return len(self) == 0
        samples = len(self.dataset)
        return samples == 0 or (self.drop_last and samples < self.batch_size * self.processes)


def _check_dataset(dataset: Any) -> None:
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise ConfigError(
            f"a ResumableLoader needs a dataset with a length and items by index, but {type(dataset).__name__} "
            "does not have them; use a torch DataLoader for it instead"
        )


def _return_unchanged(batch: Any) -> Any:
    return batch

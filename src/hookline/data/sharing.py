"""Shares of a DataLoader with its own sampler or batch sampler: each of n processes takes every n-th batch.

All processes draw the same order, with generators that only the sampler uses, and read only their own batches. A
sampler that shares the data itself has a `rank`, a `num_replicas` or the like, as torch's DistributedSampler does, or
an attribute `shares_data = True`.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from hookline.common import rng
from hookline.common.untouched import ConsumedError, untouched

log = logging.getLogger("hookline")

#: The attributes of samplers that know the number of processes.
KNOW_PROCESSES = ("rank", "num_replicas", "world_size", "num_processes", "process_index", "shares_data")
#: The indices of a batch that are compared between processes.
COMPARED = 16


class EveryNth:
    """Every n-th batch of indices of a batch sampler, for one of n processes.

    If `pad`, all processes get as many batches: one that has none left repeats the last one, without samples.
    """

    def __init__(self, batches: Any, rank: int, processes: int, pad: bool) -> None:
        self.batches, self._rank, self._processes = batches, rank, processes
        self._pad = pad and hasattr(batches, "__len__")

    @property
    def sampler(self) -> Any:
        """Return the sampler of the batch sampler, which hooks tell the number of the epoch."""
        return getattr(self.batches, "sampler", self.batches)

    def __len__(self) -> int:
        missing = 0 if self._pad else self._rank
        return max(0, -(-(len(self.batches) - missing) // self._processes))

    def __iter__(self) -> Iterator[Any]:
        generators = Generators()
        with generators.used():
            batches = iter(self.batches)
        while True:
            with generators.used():  # others draw from the same ones between two batches
                found = list(islice(batches, self._processes))
            if self._rank < len(found) or (found and self._pad):
                yield found[min(self._rank, len(found) - 1)]
            if len(found) < self._processes:
                return

    def is_repeated(self, batch: int) -> bool:
        """Return whether a batch belongs to another process, so that its samples do not count here."""
        return self._pad and batch * self._processes + self._rank >= len(self.batches)


class Generators:
    """The random generators of torch (on the CPU), numpy and Python, as one object uses them alone."""

    def __init__(self) -> None:
        self._states = _states()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Continue with these generators inside the context."""
        others = _states()
        _set(self._states)
        try:
            yield
        finally:
            self._states = _states()
            _set(others)


def _states() -> tuple[Tensor, Any, Any]:
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


def _set(states: tuple[Tensor, Any, Any]) -> None:
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])


def share_by_position(loader: Iterable[Any], rank: int, processes: int, pad: bool) -> Iterable[Any]:
    """Return a DataLoader with every n-th batch of a DataLoader. Any other loader is returned unchanged."""
    if processes == 1 or type(loader) is not DataLoader or isinstance(loader.dataset, IterableDataset):
        return loader
    if loader.batch_sampler is None or order_of(loader) is not None or shares_itself(loader):
        return loader
    return DataLoader(
        loader.dataset,
        batch_sampler=EveryNth(loader.batch_sampler, rank, processes, pad),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )


def order_of(loader: Any) -> EveryNth | None:
    """Return the order of a loader that is shared by position; None for any other loader."""
    found = getattr(loader, "batch_sampler", None)
    return found if isinstance(found, EveryNth) else None


def shares_itself(loader: Any) -> bool:
    """Return whether a loader, or a sampler or data set of it, knows that there are several processes."""
    waiting: list[Any] = [loader, getattr(loader, "dataset", None)]
    seen: list[Any] = []
    while waiting:
        each = waiting.pop()
        if each is None or any(each is other for other in seen):
            continue
        if any(getattr(each, name, None) is not None for name in KNOW_PROCESSES):
            return True
        seen.append(each)
        waiting += [getattr(each, name, None) for name in ("sampler", "batch_sampler")]
    return False


def first_indices(loader: Any, seed: int) -> str:
    """Return the first indices that a loader draws before it is shared, as text; empty if they cannot be known."""
    order = order_of(loader)
    if order is None:
        return ""
    try:
        with rng.preserved(), untouched(loader):
            rng.seed_everything(seed)
            return str(list(islice(next(iter(order.batches), ()), COMPARED)))
    except ConsumedError:
        return ""


def compared(
    batches: Iterable[tuple[Any, bool]], name: str, gather: Callable[[str], list[str]]
) -> Iterator[tuple[Any, bool]]:
    """Yield all batches of a loader. Warn, before the first one is used, if every process reads the same ones."""
    pairs = iter(batches)
    for batch, last in islice(pairs, 1):
        if len(set(gather(fingerprint(batch)))) == 1:
            log.warning(
                "every process reads the same batches from the %s, so all of them train on the same data. Let it yield "
                "another share in each: itertools.islice(batches, rank, None, world_size), with RANK and WORLD_SIZE of "
                "the environment; or use a DataLoader of a data set with a length, which is shared",
                name,
            )
        yield batch, last
    yield from pairs


def fingerprint(batch: Any) -> str:
    """Return a text that is the same for equal batches of tensors, numbers and texts."""
    digest = sha256()
    for each in _leaves(batch):
        digest.update(each)
    return digest.hexdigest()


def _leaves(value: Any) -> Iterator[bytes]:
    if isinstance(value, Tensor):
        whole = value.detach().cpu().contiguous()
        yield str((whole.dtype, whole.shape)).encode()
        yield (
            whole.view(-1).view(torch.uint8).numpy().tobytes() if whole.numel() and whole.ndim else repr(whole).encode()
        )
    elif isinstance(value, (Mapping, list, tuple)):
        for each in value.items() if isinstance(value, Mapping) else value:
            yield from _leaves(each)
    else:
        yield repr(value).encode()

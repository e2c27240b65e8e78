"""Going into any loader at batch k: in which of four ways depends on what the loader is.

ResumableLoader                         starts there, exactly
a plain DataLoader, in order or         goes through a ResumableLoader of the same settings
  shuffled, and a list
a loader with a state_dict of its own   is given the state that was saved
anything else                           is read again from its beginning, with a warning
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import chain, islice
from typing import Any, cast

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler

from hookline.common import rng
from hookline.data.loader import ResumableLoader, mix

log = logging.getLogger("hookline")

_twins: weakref.WeakKeyDictionary[DataLoader[Any], ResumableLoader] = weakref.WeakKeyDictionary()


def iterator(
    loader: Iterable[Any],
    *,
    seed: int | None,
    epoch: int,
    start: int,
    state: Mapping[str, Any] | None,
    length: int | None = None,
    resuming: bool = False,
) -> Iterator[Any]:
    """The batches of pass `epoch` from number `start` on; where a resume is not exact, it is said."""
    resumable = as_resumable(loader)
    if resumable is not None:
        if seed is not None:
            resumable.seed = seed
        return resumable.iterate(epoch, start)
    if isinstance(loader, (list, tuple)):
        return islice(loader, start, None)
    if is_stateful(loader) and (state is not None or not start):
        if state is not None:
            loader.load_state_dict(state)  # type: ignore[attr-defined]  # it is one that has it
        if start == 0:
            return _next_pass(loader)
        return iter(loader) if start != length else iter(())  # an iterator could begin the next pass already
    found = iter(loader) if seed is None or is_stateful(loader) else seeded(loader, mix(seed, epoch))
    if resuming:
        again = f"is read again up to batch {start}, because it cannot start in the middle; and it " if start else ""
        log.warning(
            "the %s %smay give other batches than in the interrupted run: its order and what it draws at random are "
            "its own. A hookline.data.ResumableLoader, or a plain DataLoader, resumes exactly.",
            type(loader).__name__,
            again,
        )
    if start:
        next(islice(found, start - 1, None), None)
    return found


def as_resumable(loader: Iterable[Any]) -> ResumableLoader | None:
    """The loader itself, or one of the same settings for a plain DataLoader whose order is known; or none."""
    if isinstance(loader, ResumableLoader):
        return loader
    if type(loader) is not DataLoader or not _is_plain(loader):
        return None
    if not getattr(loader, "_DataLoader__initialized", True):  # how torch's persistent workers are let go of by hand
        loader._DataLoader__initialized = True
        _twins.pop(loader, None)
    if loader not in _twins:
        batches = cast("BatchSampler", loader.batch_sampler)
        _twins[loader] = ResumableLoader(
            loader.dataset,
            batch_size=batches.batch_size,
            shuffle=isinstance(batches.sampler, RandomSampler),
            num_workers=loader.num_workers,
            drop_last=batches.drop_last,
            collate_fn=loader.collate_fn,
            persistent_workers=loader.persistent_workers,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            prefetch_factor=loader.prefetch_factor,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
        )
    return _twins[loader]


def _is_plain(loader: DataLoader[Any]) -> bool:
    """Whether it goes through all of a dataset once, in order or shuffled, in batches of one size."""
    batches = loader.batch_sampler
    if isinstance(loader.dataset, IterableDataset) or type(batches) is not BatchSampler:
        return False
    sampler = batches.sampler
    shuffled = type(sampler) is RandomSampler and not sampler.replacement
    if not shuffled and type(sampler) is not SequentialSampler:
        return False
    return len(cast("Sized", sampler)) == len(cast("Sized", loader.dataset))


def is_stateful(loader: Iterable[Any]) -> bool:
    """Whether it has a state of its own."""
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")


def _next_pass(loader: Iterable[Any]) -> Iterator[Any]:
    """A pass from its beginning; a loader whose state was saved at the end of one may first give nothing more of it."""
    found = iter(loader)
    first = list(islice(found, 1))
    return chain(first, found) if first else iter(loader)


def seeded(loader: Iterable[Any], seed: int) -> Iterator[Any]:
    """An iterator whose order, if it comes from the random generators, is a function of the seed.

    The first batch is read here too: a sampler draws its order when it is first asked, and so does its loader for the
    seeds of its workers.
    """
    with rng.untouched():
        rng.seed_everything(seed)
        found = iter(loader)
        first = list(islice(found, 1))
    return chain(first, found)

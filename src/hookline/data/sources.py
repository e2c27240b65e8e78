"""Starting any loader at batch k. The way depends on the loader.

ResumableLoader, list or tuple          starts exactly there
plain DataLoader, in order or shuffled  is read through a ResumableLoader with the same settings
loader with its own state_dict          loads the saved state
any other loader                        is read again from its beginning, with a warning
"""

from __future__ import annotations

import logging
import math
import weakref
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from hashlib import blake2b
from itertools import chain, islice
from typing import Any, cast

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler

from hookline.common import rng
from hookline.common.rng import mix
from hookline.common.torch_private import LOADER_IS_FIXED
from hookline.data.loader import ResumableLoader
from hookline.data.sharing import order_of, share_by_position, shares_itself

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
    once: bool = False,
    skip: Container[int] = (),
) -> Iterator[Any]:
    """Return the batches of pass `epoch`, starting with batch `start`; warn if the resume is not exact.

    If only the first batch is needed (`once`), a loader that can read it alone does so. The numbers in `skip` are left
    out; only a loader whose order is not known has to read these batches.
    """
    resumable = as_resumable(loader)
    if resumable is not None:
        if seed is not None:
            resumable.seed = seed
        return resumable.iterate_once(epoch, skip) if once else resumable.iterate(epoch, start, skip)
    found = _from_start(loader, seed, epoch, start, state, length, resuming)
    return found if not skip else (batch for number, batch in enumerate(found, start) if number not in skip)


def _from_start(
    loader: Iterable[Any],
    seed: int | None,
    epoch: int,
    start: int,
    state: Mapping[str, Any] | None,
    length: int | None,
    resuming: bool,
) -> Iterator[Any]:
    """Return all batches from batch `start` on, of a loader that is not resumable."""
    if isinstance(loader, (list, tuple, SharedList)):
        return islice(loader, start, None)
    if is_stateful(loader) and (state is not None or not start):
        if state is not None:
            loader.load_state_dict(state)  # type: ignore[attr-defined]  # a stateful loader has it
        if start == 0:
            return _next_pass(loader)
        return iter(loader) if start != length else iter(())  # at the end, iter() could already begin the next pass
    found = iter(loader) if seed is None or is_stateful(loader) else seeded(loader, mix(seed, epoch))
    if resuming:
        again = f"cannot start in the middle, so it is read again up to batch {start}. It " if start else ""
        log.warning(
            "the %s %smay return other batches than in the interrupted run, because it controls its own order and "
            "random numbers. A hookline.data.ResumableLoader or a plain DataLoader resumes exactly.",
            type(loader).__name__,
            again,
        )
    if start:
        next(islice(found, start - 1, None), None)
    return found


def shared(loader: Iterable[Any], rank: int, processes: int, pad: bool) -> Iterable[Any]:
    """Return the loader of this process's share of the data; see `hookline.data.loader.Order.share`.

    A loader whose order is not known is returned unchanged: its own code decides what each process reads. Training
    compares the first batches of the processes then.
    """
    resumable = as_resumable(loader)
    if resumable is not None:
        resumable.share(rank, processes, pad)
        return resumable
    if isinstance(loader, (list, tuple)):
        return SharedList(loader, rank, processes, pad)
    return share_by_position(loader, rank, processes, pad)


def is_shared(loader: Iterable[Any]) -> bool:
    """Return whether `shared` knows which batches each process reads, or the loader does."""
    known = isinstance(loader, SharedList) or as_resumable(loader) is not None or order_of(loader) is not None
    return known or shares_itself(loader)


class SharedList(Sequence[Any]):
    """Every n-th batch of a list, for one of n processes. If `pad`, a missing last one is repeated, without samples."""

    def __init__(self, batches: Sequence[Any], rank: int, processes: int, pad: bool) -> None:
        self._batches, self._rank, self._processes, self._pad = batches, rank, processes, pad

    def __len__(self) -> int:
        missing = 0 if self._pad else self._rank
        return max(0, -(-(len(self._batches) - missing) // self._processes))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._batches[self.place(index)]

    def place(self, index: int) -> int:
        """Return the place of a batch of this process in the whole list."""
        return min(index * self._processes + self._rank, len(self._batches) - 1)

    @property
    def is_empty(self) -> bool:
        """Return whether no process has a batch."""
        return not self._batches

    def is_repeated(self, batch: int) -> bool:
        """Return whether a batch belongs to another process, so that its samples do not count here."""
        return batch * self._processes + self._rank >= len(self._batches)


def as_resumable(loader: Iterable[Any]) -> ResumableLoader | None:
    """Return a ResumableLoader for this loader, or None if it cannot be resumed that way.

    A ResumableLoader is returned unchanged. A plain DataLoader, whose order is known, gets one with the same settings.
    """
    if isinstance(loader, ResumableLoader):
        return loader
    if type(loader) is not DataLoader or not is_plain(loader):
        return None
    if not getattr(loader, LOADER_IS_FIXED, True):  # the way to end torch's persistent workers by hand
        setattr(loader, LOADER_IS_FIXED, True)
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


def is_plain(loader: DataLoader[Any]) -> bool:
    """Return whether it reads the whole dataset once, in order or shuffled, in batches of one size."""
    batches = loader.batch_sampler
    if isinstance(loader.dataset, IterableDataset) or type(batches) is not BatchSampler:
        return False
    sampler = batches.sampler
    shuffled = type(sampler) is RandomSampler and not sampler.replacement
    if not shuffled and type(sampler) is not SequentialSampler:
        return False
    return len(cast("Sized", sampler)) == len(cast("Sized", loader.dataset))


def full_size(loader: Iterable[Any]) -> int | None:
    """Return the number of samples that a loader puts together for every batch but the last; None if that varies."""
    resumable = as_resumable(loader)
    if resumable is not None:
        return None if resumable.samples(0) is None else resumable.batch_size
    return _sampler(loader)[1]


def last_size(loader: Iterable[Any]) -> int:
    """Return the number of samples of the last batch of a DataLoader that has a `full_size`."""
    samples, size = _sampler(loader)
    assert size, "it has a full size"
    return size if cast("DataLoader[Any]", loader).drop_last else samples % size or size


def _sampler(loader: Iterable[Any]) -> tuple[int, int | None]:
    """Return how many samples a pass of a DataLoader has, and how many its full batches have, if that is fixed."""
    batches = loader.batch_sampler if isinstance(loader, DataLoader) else None
    if type(batches) is not BatchSampler or isinstance(cast("Any", loader).dataset, IterableDataset):
        return 0, None
    try:
        return len(cast("Sized", batches.sampler)), batches.batch_size
    except TypeError:  # a sampler without a length
        return 0, None


def stored(loader: Iterable[Any]) -> Iterable[Any] | None:
    """Return the batches of a list, of all processes; None for any other loader."""
    batches = loader._batches if isinstance(loader, SharedList) else loader
    plain = isinstance(batches, (list, tuple)) and type(batches).__getitem__ in (list.__getitem__, tuple.__getitem__)
    # A list may have its own way to iterate, which counts the batches that are used, for example.
    return map(cast("Sequence[Any]", batches).__getitem__, range(len(cast("Sized", batches)))) if plain else None


def is_stateful(loader: Iterable[Any]) -> bool:
    """Return whether the loader saves and loads its own state."""
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")


def _next_pass(loader: Iterable[Any]) -> Iterator[Any]:
    """Return a whole pass.

    If the state was saved at the end of a pass, the first iterator may only finish that pass, without any batches.
    """
    batches = iter(loader)
    first = list(islice(batches, 1))
    return chain(first, batches) if first else iter(loader)


def seeded(loader: Iterable[Any], seed: int) -> Iterator[Any]:
    """Return an iterator whose order, if it comes from the global generators, is a function of the seed.

    This also reads the first batch, because samplers draw their order, and loaders the seeds of their workers, at that
    moment.
    """
    with rng.preserved():
        rng.seed_everything(seed)
        found = iter(loader)
        first = list(islice(found, 1))
    return chain(first, found)


# -- the fingerprint of data: what can be known about it without reading a sample, so that a change is noticed

#: The most bytes of a tensor or an array, and the most entries of a collection, that are looked at. Of longer ones,
#: evenly spaced parts are. The parts of an array are blocks, because it may be in a file, which is read page by page.
MOST_BYTES, MOST_ENTRIES, BLOCKS = 1 << 22, 256, 64
#: Containers inside each other beyond this are not looked into.
DEEPEST = 4


def fingerprint(loader: Iterable[Any]) -> dict[str, Any]:
    """Return the kind of the data, its size, and a hash of what is in memory, as plain data.

    A data set that has more, such as files, can have a method or an attribute `fingerprint`.
    """
    batches = loader._batches if isinstance(loader, SharedList) else loader
    dataset: Any = getattr(batches, "dataset", batches)
    own = None
    with suppress(Exception):  # code of the user, which may mean something else by the name
        own = dataset.fingerprint() if callable(dataset.fingerprint) else dataset.fingerprint
    samples = None
    with suppress(TypeError, NotImplementedError):
        samples = len(dataset)
    value = dataset if isinstance(dataset, (list, tuple)) else getattr(dataset, "__dict__", {})
    return {
        "type": type(dataset).__name__,
        "samples": samples,
        "hash": str(own)[:200] if own is not None else hash_of(value),
    }


def hash_of(value: Any) -> str:
    """Return a hash of tensors and plain values in nested data. It is the same in every process."""
    found = blake2b(digest_size=8)
    for part in _parts(value, 0):
        found.update(part + b"\0")
    return found.hexdigest()


def _parts(value: Any, depth: int) -> Iterator[bytes]:
    if isinstance(value, torch.Tensor):
        yield from _tensor(value.detach())
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield f"{value.dtype} {value.shape}".encode()
        yield (value if value.nbytes <= MOST_BYTES else value[_places(value.shape, value.itemsize)]).tobytes()
    elif isinstance(value, (Mapping, list, tuple, range)) and depth < DEEPEST:
        entries: Any = list(value.items()) if isinstance(value, Mapping) else value
        yield f"{type(value).__name__} {len(entries)}".encode()
        for entry in entries[:: max(1, -(-len(entries) // MOST_ENTRIES))]:
            yield from _parts(entry, depth + 1)
    elif value is None or isinstance(value, (bool, int, float, str, bytes)):
        yield repr(value).encode()
    else:
        yield type(value).__name__.encode()


def _tensor(tensor: torch.Tensor) -> Iterator[bytes]:
    yield f"{tensor.dtype} {tuple(tensor.shape)}".encode()
    if (
        tensor.layout == torch.strided
        and not tensor.is_meta
        and not tensor.is_quantized
        and tensor.device.type == "cpu"
    ):
        is_short = tensor.nbytes <= MOST_BYTES
        part = tensor if is_short else tensor[tuple(map(torch.from_numpy, _places(tensor.shape, tensor.itemsize)))]
        yield part.resolve_conj().resolve_neg().reshape(-1).view(torch.uint8).numpy().tobytes()


def _places(shape: Sequence[int], size: int) -> tuple[Any, ...]:
    """Return the indices of evenly spaced blocks of an array whose elements have `size` bytes."""
    length = max(1, MOST_BYTES // BLOCKS // size)
    begins = np.linspace(0, math.prod(shape) - length, BLOCKS).astype(np.int64)
    return np.unravel_index((begins[:, None] + np.arange(length)).reshape(-1), shape)

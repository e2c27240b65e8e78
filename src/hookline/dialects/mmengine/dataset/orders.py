"""Adapt samplers to hookline's resumable loader, which can start at any batch without reading earlier ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from hookline.data.loader import Order
from hookline.dialects.mmengine.dataset.passes import Passes
from hookline.dialects.mmengine.dataset.sampler import InfiniteSampler, _SeededSampler


class SamplerOrder(Order):
    """The samples of a sampler in batches.

    A pass of a sampler is a function of seed and epoch: the sampler receives the epoch (`set_epoch`), and random
    numbers come from seeded generators.
    """

    shares_itself = True  # the samplers know their process

    def __init__(self, dataset: Any, sampler: Any, batch_size: int, drop_last: bool, seed: int) -> None:
        super().__init__(dataset, batch_size, shuffle=False, drop_last=drop_last, seed=seed)
        self.sampler = sampler
        self._passes = Passes(sampler, sampler)
        self.length_is_estimate = not isinstance(sampler, _SeededSampler)

    def batches(self, seed: int, epoch: int, start: int) -> Iterator[Sequence[int]]:
        """Yield the indices of each batch of an epoch, from batch number `start` on."""
        indices = self._passes.draw(seed, epoch, len(self) * self.batch_size)
        whole, rest = divmod(len(indices), self.batch_size)
        for batch in range(start, whole + (rest > 0 and not self.drop_last)):
            yield indices[batch * self.batch_size : (batch + 1) * self.batch_size]

    def __len__(self) -> int:
        samples = len(self.sampler)
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)


class EndlessOrder(SamplerOrder):
    """An endless stream in full batches; a pass has as many batches as are needed for all samples."""

    def batches(self, seed: int, epoch: int, start: int) -> Iterator[Sequence[int]]:
        """Yield the indices of each batch of a pass, from batch number `start` on."""
        if self.sampler.follows_run:
            self.sampler.seed = seed
        stream = self.sampler.stream((epoch * len(self) + start) * self.batch_size)
        for _ in range(start, len(self)):
            yield list(islice(stream, self.batch_size))


class BatchSamplerOrder(Order):
    """The batches of a project's own batch sampler, as many as it yields: its length may be an estimate."""

    shares_itself = True
    length_is_estimate = True

    def __init__(self, dataset: Any, batch_sampler: Any, sampler: Any, seed: int) -> None:
        size = getattr(batch_sampler, "batch_size", 1)
        super().__init__(dataset, sum(size) if isinstance(size, Iterable) else size, False, False, seed)
        self.batch_sampler, self.sampler = batch_sampler, sampler
        self._passes = Passes(batch_sampler, sampler)

    def batches(self, seed: int, epoch: int, start: int) -> Iterator[Sequence[int]]:
        """Yield the indices of each batch of an epoch, from batch number `start` on."""
        return iter(self._passes.draw(seed, epoch, len(self))[start:])

    def __len__(self) -> int:
        return len(self.batch_sampler)


def create_order(dataset: Any, sampler: Any, batch_size: int, drop_last: bool, seed: int) -> Order:
    """Create the order for a sampler."""
    kind = EndlessOrder if isinstance(sampler, InfiniteSampler) else SamplerOrder
    return kind(dataset, sampler, batch_size, drop_last, seed)

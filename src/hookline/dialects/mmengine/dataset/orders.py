"""Samplers as orders of hookline's resumable loader: from batch k on, without reading what comes before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from hookline.common import rng
from hookline.data.loader import Order, mix
from hookline.dialects.mmengine.dataset.sampler import InfiniteSampler, _SeededSampler


class SamplerOrder(Order):
    """The samples of a sampler in batches.

    A pass of a sampler is a function of seed and epoch: it is told the epoch (`set_epoch`), and what it draws at random
    is drawn from seeded generators.
    """

    def __init__(self, dataset: Any, sampler: Any, batch_size: int, drop_last: bool, seed: int) -> None:
        super().__init__(dataset, batch_size, shuffle=False, drop_last=drop_last, seed=seed)
        self.sampler = sampler

    def batches(self, seed: int, epoch: int, start: int) -> Iterator[Sequence[int]]:
        """The indices of each batch of an epoch, from number `start` on."""
        indices = one_pass(self.sampler, self.sampler, seed, epoch)
        for batch in range(start, len(self)):
            yield indices[batch * self.batch_size : (batch + 1) * self.batch_size]

    def __len__(self) -> int:
        samples = len(self.sampler)
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)


class EndlessOrder(SamplerOrder):
    """A stream without end, in full batches; a pass is as many of them as the samples fill."""

    def batches(self, seed: int, epoch: int, start: int) -> Iterator[Sequence[int]]:
        """The indices of each batch of a pass, from number `start` on."""
        if self.sampler.follows_run:
            self.sampler.seed = seed
        stream = self.sampler.stream((epoch * len(self) + start) * self.batch_size)
        for _ in range(start, len(self)):
            yield list(islice(stream, self.batch_size))


class BatchSamplerOrder(Order):
    """The batches of a batch sampler of a project."""

    def __init__(self, dataset: Any, batch_sampler: Any, sampler: Any, seed: int) -> None:
        super().__init__(dataset, getattr(batch_sampler, "batch_size", 1), shuffle=False, drop_last=False, seed=seed)
        self.batch_sampler, self.sampler = batch_sampler, sampler

    def batches(self, seed: int, epoch: int, start: int) -> Iterator[Sequence[int]]:
        """The indices of each batch of an epoch, from number `start` on."""
        return iter(one_pass(self.batch_sampler, self.sampler, seed, epoch)[start:])

    def __len__(self) -> int:
        return len(self.batch_sampler)


def one_pass(source: Iterable[Any], sampler: Any, seed: int, epoch: int) -> list[Any]:
    """All that a sampler, or a batch sampler over it, gives in an epoch."""
    if isinstance(sampler, _SeededSampler) and sampler.follows_run:
        sampler.seed = seed
    for each in {id(sampler): sampler, id(source): source}.values():
        if hasattr(each, "set_epoch"):
            each.set_epoch(epoch)
    with rng.untouched():
        rng.seed_everything(mix(seed, epoch))
        return list(islice(source, len(source)))  # type: ignore[arg-type]  # samplers have a length


def order_of(dataset: Any, sampler: Any, batch_size: int, drop_last: bool, seed: int) -> Order:
    """The order that a sampler gives."""
    kind = EndlessOrder if isinstance(sampler, InfiniteSampler) else SamplerOrder
    return kind(dataset, sampler, batch_size, drop_last, seed)

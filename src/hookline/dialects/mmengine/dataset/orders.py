"""Adapt samplers to hookline's resumable loader, which can start at any batch without reading earlier ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from hookline.common import rng
from hookline.data.loader import Order, mix
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

    def batches(self, seed: int, epoch: int, start: int) -> Iterator[Sequence[int]]:
        """Yield the indices of each batch of an epoch, from batch number `start` on."""
        indices = draw_pass(self.sampler, self.sampler, seed, epoch)
        for batch in range(start, len(self)):
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
    """The batches of a project's own batch sampler."""

    shares_itself = True

    def __init__(self, dataset: Any, batch_sampler: Any, sampler: Any, seed: int) -> None:
        super().__init__(dataset, getattr(batch_sampler, "batch_size", 1), shuffle=False, drop_last=False, seed=seed)
        self.batch_sampler, self.sampler = batch_sampler, sampler

    def batches(self, seed: int, epoch: int, start: int) -> Iterator[Sequence[int]]:
        """Yield the indices of each batch of an epoch, from batch number `start` on."""
        return iter(draw_pass(self.batch_sampler, self.sampler, seed, epoch)[start:])

    def __len__(self) -> int:
        return len(self.batch_sampler)


def draw_pass(source: Iterable[Any], sampler: Any, seed: int, epoch: int) -> list[Any]:
    """Return everything that a sampler, or a batch sampler over it, yields in an epoch."""
    if isinstance(sampler, _SeededSampler) and sampler.follows_run:
        sampler.seed = seed
    for each in {id(sampler): sampler, id(source): source}.values():
        if hasattr(each, "set_epoch"):
            each.set_epoch(epoch)
    with rng.preserved():
        rng.seed_everything(mix(seed, epoch))
        return list(islice(source, len(source)))  # type: ignore[arg-type]  # samplers have a length


def create_order(dataset: Any, sampler: Any, batch_size: int, drop_last: bool, seed: int) -> Order:
    """Create the order for a sampler."""
    kind = EndlessOrder if isinstance(sampler, InfiniteSampler) else SamplerOrder
    return kind(dataset, sampler, batch_size, drop_last, seed)

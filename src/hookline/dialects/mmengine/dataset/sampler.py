"""Samplers, which select the samples of a pass over the data and their order as a function of seed and epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized
from itertools import islice

import torch
from torch.utils.data import Sampler

from hookline.common.rng import mix
from hookline.dialects.mmengine.dist import broadcast_object_list, get_dist_info

__all__ = ["DefaultSampler", "InfiniteSampler"]


class _SeededSampler(Sampler[int]):
    """The base of both samplers: knows the rank, the number of processes, and the seed."""

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int | None = None) -> None:
        self.rank, self.world_size = get_dist_info()
        self.dataset, self.shuffle = dataset, shuffle
        #: Whether the run's seed is used; if so, the loader of the run sets it.
        self.follows_run = seed is None
        self.seed = _shared_seed() if seed is None else seed

    def _order(self, number: int) -> list[int]:
        """Return all samples in the order of pass `number`; hookline's own loader shuffles in the same way."""
        if not self.shuffle:
            return list(range(len(self.dataset)))
        generator = torch.Generator().manual_seed(mix(self.seed, number))
        order: list[int] = torch.randperm(len(self.dataset), generator=generator).tolist()
        return order


class DefaultSampler(_SeededSampler):
    """Reads every sample once per pass, in order or shuffled, divided among the processes.

    Args:
        dataset: The dataset.
        shuffle: Whether every epoch has a new random order.
        seed: The seed of the order; by default, the seed of the run.
        round_up: Whether to repeat samples until every process has the same number.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int | None = None, round_up: bool = True) -> None:
        super().__init__(dataset, shuffle, seed)
        self.round_up = round_up
        self.epoch = 0

    @property
    def total_size(self) -> int:
        """Return how many samples all processes together read per pass."""
        samples = len(self.dataset)
        return math.ceil(samples / self.world_size) * self.world_size if self.round_up else samples

    @property
    def num_samples(self) -> int:
        """Return how many samples this process reads per pass."""
        return math.ceil((self.total_size - self.rank) / self.world_size)

    def __iter__(self) -> Iterator[int]:
        order, total = self._order(self.epoch), self.total_size
        repeated = (order * math.ceil(total / len(order)))[:total] if order else order
        return iter(repeated[self.rank :: self.world_size])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next pass."""
        self.epoch = epoch


class InfiniteSampler(_SeededSampler):
    """Yields samples endlessly, pass after pass; a batch may span two passes, so all batches are full.

    Args:
        dataset: The dataset.
        shuffle: Whether every pass has a new random order.
        seed: The seed of the order; by default, the seed of the run.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int | None = None) -> None:
        super().__init__(dataset, shuffle, seed)
        self._running: Iterator[int] | None = None

    @property
    def size(self) -> int:
        """Return the number of samples."""
        return len(self.dataset)

    def stream(self, start: int = 0) -> Iterator[int]:
        """Yield the samples that this process reads, from its sample number `start` on."""
        number, within = divmod(start * self.world_size + self.rank, self.size)
        while True:
            yield from islice(self._order(number), within, None, self.world_size)
            left = self.size - within
            number, within = number + 1, -left % self.world_size
            while within >= self.size:  # fewer samples than processes
                number, within = number + 1, within - self.size

    def __iter__(self) -> Iterator[int]:
        if self._running is None:
            self._running = self.stream()
        return self._running

    def __len__(self) -> int:
        return self.size

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: there is just one stream."""


def _shared_seed() -> int:
    """Return torch's seed of the first process, shared by all processes; this draws no random numbers."""
    seeds = [torch.initial_seed() % 2**31]
    broadcast_object_list(seeds)
    return seeds[0]

"""Passes over a project's own sampler or batch sampler, as torch's DataLoader makes them, and repeatable."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
import torch

from hookline.common import rng
from hookline.common.rng import mix
from hookline.dialects.mmengine.dataset.sampler import _SeededSampler

#: Objects that move on with every number that is taken from them.
MOVING = (Iterator, torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


class Passes:
    """Draws everything that a sampler, or a batch sampler over it, yields in a pass.

    A sampler runs to its end, whatever its length says, because it may have code after its last item. One that never
    ends is read in one stream. Some samplers have iterators or generators that go on from one pass to the next. For
    these, a resumed run draws the earlier passes first, which reads no data.
    """

    def __init__(self, source: Any, sampler: Any) -> None:
        self._source, self._sampler = source, sampler
        self._remembers = _remembers(source) or _remembers(sampler)
        self._drawn = 0
        self._last: tuple[tuple[int, int], list[Any]] | None = None
        self._stream: Iterator[Any] | None = None

    def draw(self, seed: int, epoch: int, size: int) -> list[Any]:
        """Return the items of a pass; of a sampler that never ends, `size` items."""
        if self._last is None or self._last[0] != (seed, epoch):
            self._last = ((seed, epoch), self._draw_up_to(seed, epoch, size))
        return self._last[1]

    def _draw_up_to(self, seed: int, epoch: int, size: int) -> list[Any]:
        if epoch and not self._drawn:  # this shows whether it ever ends
            self._draw(seed, 0, size)
        goes_on = self._remembers or self._stream is not None
        for earlier in range(self._drawn, epoch) if goes_on else ():
            self._draw(seed, earlier, size)
        return self._draw(seed, epoch, size)

    def _draw(self, seed: int, epoch: int, size: int) -> list[Any]:
        self._drawn = epoch + 1
        if isinstance(self._sampler, _SeededSampler) and self._sampler.follows_run:
            self._sampler.seed = seed
        for each in {id(self._sampler): self._sampler, id(self._source): self._source}.values():
            if hasattr(each, "set_epoch"):
                each.set_epoch(epoch)
        with rng.preserved():
            rng.seed_everything(mix(seed, epoch))
            if self._stream is not None:
                return list(islice(self._stream, size))
            items = iter(self._source)
            found = list(islice(items, size))
            more = list(islice(items, size + 1))  # more than its length: it has no end
            if len(more) <= size:
                return found + more
            self._stream = chain(more, items)
            return found


def _remembers(sampler: Any) -> bool:
    """Return whether a sampler has iterators or generators among its attributes."""
    values = list(getattr(sampler, "__dict__", {}).values())
    for each in list(values):
        if isinstance(each, (list, tuple)):
            values += each
        elif isinstance(each, dict):
            values += each.values()
    return any(isinstance(value, MOVING) for value in values)

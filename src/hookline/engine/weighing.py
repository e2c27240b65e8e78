"""Weighing: how much each batch of a training counts; `hookline.data.weights` has the rule.

A weight is relative to a usual batch: the first one of the run, whose weight is part of a checkpoint. If the loader
knows that all batches but the last of a pass have as many samples, a step has nothing to do for this. Otherwise a
weight is found when it is needed, from the batch as the step gets it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from hookline.data.sources import as_resumable
from hookline.data.weights import CurrentWeight
from hookline.optim.weights import BatchWeights

if TYPE_CHECKING:
    from hookline.data.batches import Batches
    from hookline.engine.loop_specs import TrainLoop
    from hookline.optim.optims import Optims
    from hookline.run.position import Position
    from hookline.state.host import Host


class Weighing(BatchWeights):
    """The weights of the batches of one training.

    Args:
        host: The owner of the counters and of the current batch. Hooks see the weight there.
        loop: The data, and the function of the user, if there is one.
        optims: The optimizers, whose windows are weighted means.
        is_even: True if all batches count the same, whatever they have.
    """

    def __init__(self, host: Host, loop: TrainLoop, optims: Optims, is_even: bool = False) -> None:
        self._host, self._loop, self._optims = host, loop, optims
        self._is_even = is_even
        self._batches: Batches | None = None
        #: The weight of all batches of the pass but the last; None if they vary.
        self._full: float | None = None
        #: What the step said, and the iteration that it said it in.
        self._said, self._said_at = 0.0, -1

    # -- a pass over the data

    def begin_pass(self, batches: Batches, pairs: Iterable[tuple[Any, bool]]) -> Iterable[tuple[Any, bool]]:
        """Begin a pass. Return its pairs of a batch and whether it is the last."""
        self._batches, position = batches, self._position
        if self._is_even:
            return pairs
        self._full = self._weight_of_all(batches)
        if not position.usual_weight:
            first = self._full
            if first is None:
                pairs = iter(pairs)
                begun = next(pairs, None)
                if begun is None:  # a resumed pass that has no batch left
                    return ()
                first, pairs = self._weigh(begun[0]), chain([begun], pairs)
            position.usual_weight = self._mean_over_processes(first) or 1.0
        self._host.weighing = _Varying(self) if self._full is None else CurrentWeight(self._shown(self._full))
        for optim in self._optims.values():
            optim.weights.follow(vary=self._full is None)
        return pairs

    def mark_last(self, batch: Any) -> None:
        """Weigh the last batch of a pass, which may have fewer samples than the others, or a different number here."""
        if self._is_even or self._full is None:
            return
        self._host.weighing = CurrentWeight(self._shown(self._weigh(batch)))
        for optim in self._optims.values():
            optim.weights.expect_difference()

    def _weight_of_all(self, batches: Batches) -> float | None:
        """Return the weight that all batches of a pass but the last have, in all processes; None if they may differ."""
        if self._loop.weigher.function is not None:
            return None
        if (stored := batches.stored) is not None:
            weights = {self._loop.weigher(batches, 0, batch) for batch in stored}
            return weights.pop() if len(weights) == 1 else None
        full = batches.full_size
        if as_resumable(self._loop.dataloader) is None and len(set(self._host.strategy.gather(full))) > 1:
            return None
        return full

    # -- the current batch

    def now(self) -> float:
        """Return the weight of the current batch, relative to a usual one."""
        current = self._host.weighing.current
        return 1.0 if current is None else current

    def relative(self, weight: float) -> float:
        """Return a weight relative to a usual one."""
        return weight / (self._position.usual_weight or 1.0)

    def say(self, weight: float) -> None:
        """Take the weight of the current batch from the user's step."""
        if not self._is_even:
            self._said, self._said_at = weight, self._position.iter
            self._host.weighing = _Varying(self)

    def current(self) -> float | None:
        """Return the weight of the current batch, relative to a usual one; None for a usual one."""
        said = self._said_at == self._position.iter
        return self._shown(self._said if said else self._weigh(self._host.data_batch))

    def _weigh(self, batch: Any) -> float:
        assert self._batches is not None, "a pass has begun"
        return self._loop.weigher(self._batches, self._position.batch, batch)

    def _shown(self, weight: float) -> float | None:
        relative = self.relative(weight)
        return None if relative == 1.0 else relative

    def _mean_over_processes(self, weight: float) -> float:
        strategy = self._host.strategy
        return float(strategy.reduce_sum(torch.tensor(weight, dtype=torch.float64))) / strategy.world_size

    @property
    def _position(self) -> Position:
        return self._host.position


class _Varying(CurrentWeight):
    """The weight of a batch that is found when it is needed, and once per iteration."""

    __slots__ = ("_known", "_of", "_weighing")

    def __init__(self, weighing: Weighing) -> None:
        self._weighing = weighing
        self._of: tuple[int, int] | None = None
        self._known: float | None = None

    @property
    def current(self) -> float | None:  # type: ignore[override]  # it cannot be set
        """Return the weight of the current batch, relative to a usual one; None for a usual one."""
        host = self._weighing._host
        of = host.position.iter, id(host.data_batch)
        if self._of != of:
            self._known, self._of = self._weighing.current(), of
        return self._known

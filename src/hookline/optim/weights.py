"""How much each batch of a training counts: `hookline.data.weights` has the rule.

The gradient of an accumulation window is the weighted mean of its batches, over all processes. A weight is relative to
a usual batch: the first one of the run, whose weight is part of a checkpoint. If the loader knows that all batches but
the last of a pass have as many samples, a step has nothing to do for this. Otherwise a weight is found when it is
needed, from the batch as the step gets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from hookline.data.weights import as_weight
from hookline.errors import DataError
from hookline.run.position import CurrentWeight

if TYPE_CHECKING:
    from hookline.data.batches import Batches
    from hookline.data.weights import Weigher
    from hookline.optim.optim import Optim
    from hookline.run.position import Current, Position
    from hookline.strategies import Strategy


class BatchWeights:
    """The weights of batches, as an optim asks a run for them. Without a run, all batches count the same."""

    def now(self) -> float:
        """Return the weight of the current batch, relative to a usual one."""
        return 1.0

    def relative(self, weight: float) -> float:
        """Return a weight relative to a usual one."""
        return weight

    def say(self, weight: float) -> None:
        """Take the weight of the current batch from the user's step."""


class Weighing(BatchWeights):
    """The weights of the batches of one training.

    Args:
        current: The current batch. Hooks see its weight there.
        position: The counters, and the weight of a usual batch.
        strategy: Exchanges weights with other processes.
        weigher: Weighs a batch.
        optims: The optimizers, whose windows are weighted means.
        is_even: True if all batches count the same, whatever they have.
    """

    def __init__(
        self,
        current: Current,
        position: Position,
        strategy: Strategy,
        weigher: Weigher,
        optims: Mapping[str, Optim],
        is_even: bool = False,
    ) -> None:
        self.at, self.position, self._strategy = current, position, strategy
        self._weigher, self._optims, self._is_even = weigher, optims, is_even
        self._batches: Batches | None = None
        #: The weight of all batches of the pass but the last; None if they vary.
        self._full: float | None = None
        #: What the step said, and the iteration that it said it in.
        self._said, self._said_at = 0.0, -1

    # -- a pass over the data

    def begin_pass(self, batches: Batches, pairs: Iterable[tuple[Any, bool]]) -> Iterable[tuple[Any, bool]]:
        """Begin a pass. Return its pairs of a batch and whether it is the last."""
        self._batches, position = batches, self.position
        if self._is_even:
            return pairs
        self._full = self._weight_of_all(batches)
        if self._full is not None and not position.usual_weight:
            self._note_usual(self._full)
        self.at.weight = _Varying(self) if self._full is None else CurrentWeight(self._shown(self._full))
        for optim in self._optims.values():
            optim.weights.follow(vary=self._full is None, is_said=self._weigher.function is not None)
        return pairs

    def mark_last(self, batch: Any) -> None:
        """Weigh the last batch of a pass, which may have fewer samples than the others, or a different number here."""
        if self._is_even or self._full is None:
            return
        self.at.weight = CurrentWeight(self._shown(self._weigh(batch)))
        for optim in self._optims.values():
            optim.weights.expect_difference()

    def _weight_of_all(self, batches: Batches) -> float | None:
        """Return the weight that all batches of a pass but the last have, in all processes; None if they may differ."""
        if self._weigher.function is not None:
            return None
        if (stored := batches.stored) is not None:
            return self._weigher.weight_of_all(stored)
        full = batches.full_size
        if not batches.is_shared and len(set(self._strategy.gather(full))) > 1:
            return None
        return full

    # -- the current batch

    def now(self) -> float:
        """Return the weight of the current batch, relative to a usual one. All processes ask together."""
        if self._full is None and not self.position.usual_weight and not self._is_even:
            self._note_usual(self._weigh(self.at.batch))
            self.at.weight = _Varying(self)
        current = self.at.weight.relative
        return 1.0 if current is None else current

    def relative(self, weight: float) -> float:
        """Return a weight relative to a usual one. All processes ask together."""
        if not self.position.usual_weight and not self._is_even:
            self._note_usual(weight)
        return weight / (self.position.usual_weight or 1.0)

    def _note_usual(self, first: float) -> None:
        """Compare all batches with the first one of the run, as its step gets it, in all processes."""
        self.position.usual_weight = float(mean_over_processes(self._strategy, first)) or 1.0

    def say(self, weight: float) -> None:
        """Take the weight of the current batch from the user's step."""
        if not self._is_even:
            self._said, self._said_at = weight, self.position.iter
            self.at.weight = _Varying(self)

    def current(self) -> float | None:
        """Return the weight of the current batch, relative to a usual one; None for a usual one."""
        said = self._said_at == self.position.iter
        return self._shown(self._said if said else self._weigh(self.at.batch))

    def _weigh(self, batch: Any) -> float:
        assert self._batches is not None, "a pass has begun"
        return self._weigher(self._batches, self.position.batch, batch)

    def _shown(self, weight: float) -> float | None:
        if not self.position.usual_weight and self._strategy.world_size > 1:
            return None  # a hook looks at the first batch before all processes have weighed it
        relative = self.relative(weight)
        return None if relative == 1.0 else relative


class _Varying(CurrentWeight):
    """The weight of a batch that is found when it is needed, and once per iteration."""

    __slots__ = ("_known", "_of", "_weighing")

    def __init__(self, weighing: Weighing) -> None:
        self._weighing = weighing
        self._of: tuple[int, int] | None = None
        self._known: float | None = None

    @property
    def relative(self) -> float | None:  # type: ignore[override]  # it cannot be set
        """Return the weight of the current batch, relative to a usual one; None for a usual one."""
        weighing = self._weighing
        of = weighing.position.iter, id(weighing.at.batch)
        if self._of != of:
            self._known, self._of = weighing.current(), of
        return self._known


class WindowWeights:
    """Turns the weights of batches into factors of their losses.

    If all weights are the same, every factor is exactly 1. The weights of processes are exchanged where they may
    differ: once per window.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.source = BatchWeights()
        #: True if the weights may differ between processes: from here to the end of the pass.
        self.differ = False
        #: True if a window of one batch needs its weight, too: it may differ, or be 0 because the user says so.
        self.matter = False
        #: What the user's step said about the batch of the next update, relative to a usual one.
        self._said: float | None = None
        #: The sum of the weights in the open window, in units of its first one, and the weight of the current batch.
        self.mass, self._added = 0.0, 1.0
        self._unit = 1.0
        self._exchanges = False

    def follow(self, vary: bool, is_said: bool = False) -> None:
        """Begin a pass over the data, whose batches may all `vary` in weight, or only the last one."""
        self.differ = vary and self.strategy.world_size > 1
        self.matter = self.differ or is_said

    def expect_difference(self) -> None:
        """Note that from this batch to the end of the pass, weights may differ between processes."""
        self.differ = self.strategy.world_size > 1
        self.matter = self.matter or self.differ

    def say(self, weight: Any) -> None:
        """Take the weight of the batch of the next update from the user's step."""
        number = as_weight(weight, "optim.weigh")
        self.source.say(number)
        self._said = self.source.relative(number)
        self.expect_difference()
        self.matter = True

    def factor(self, share: int, is_first: bool) -> float:
        """Return the factor of the loss of a batch, one of `share` batches of a window."""
        own, self._said = self.source.now() if self._said is None else self._said, None
        if share == 1:
            self._added, whole = 1.0, mean_over_processes(self.strategy, own) if self.differ else own
            if not whole:
                raise _no_weight("batch")
            return own / whole
        if is_first:
            self._unit, self._exchanges = (own or 1.0) if self.strategy.world_size == 1 else 1.0, False
        self._exchanges = self._exchanges or self.differ
        self._added = own / self._unit
        return self._added

    def add(self) -> None:
        """Count the batch whose gradients were just added to the window."""
        self.mass, self._added = self.mass + self._added, 1.0

    def forget(self) -> None:
        """Forget what was said about a batch that is skipped."""
        self._said = None

    def clear(self) -> None:
        """Begin a new window."""
        self.mass, self._exchanges = 0.0, False

    def correction(self, window: int) -> float:
        """Return the factor of the gradients of a window whose losses were divided by `window`."""
        mass = self._whole_mass()
        if not mass:
            raise _no_weight("accumulation window")
        return 1.0 if mass == window else window / mass

    def _whole_mass(self) -> float:
        return mean_over_processes(self.strategy, self.mass) if self._exchanges else self.mass

    def state_dict(self) -> dict[str, Any]:
        """Return the weights of an open window, as data for a checkpoint. They are the same in all processes."""
        return {"mass": self._whole_mass(), "unit": self._unit, "exchanges": self._exchanges}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the weights of an open window."""
        self.mass, self._unit = state["mass"], state.get("unit", 1.0)
        self._exchanges = state.get("exchanges", False)


def mean_over_processes(strategy: Strategy, number: float) -> float:
    """Return the mean of a number over all processes."""
    if strategy.world_size == 1:
        return number
    return float(strategy.reduce_sum(torch.tensor(number, dtype=torch.float64))) / strategy.world_size


def _no_weight(what: str) -> DataError:
    return DataError(
        f"all batches of this {what} have the weight 0, in all processes, so it has no mean; let weigh return at least "
        "1, or skip such batches with runner.skip_step"
    )

"""The weights of the batches in an accumulation window: its gradient is their weighted mean, over all processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from hookline.data.weights import as_weight
from hookline.errors import DataError

if TYPE_CHECKING:
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
        #: What the user's step said about the batch of the next update, relative to a usual one.
        self._said: float | None = None
        #: The sum of the weights in the open window, in units of its first one, and the weight of the current batch.
        self.mass, self._added = 0.0, 1.0
        self._unit = 1.0
        self._exchanges = False

    def follow(self, vary: bool) -> None:
        """Begin a pass over the data, whose batches may all `vary` in weight, or only the last one."""
        self.differ = vary and self.strategy.world_size > 1

    def expect_difference(self) -> None:
        """Note that from this batch to the end of the pass, weights may differ between processes."""
        self.differ = self.strategy.world_size > 1

    def say(self, weight: Any) -> None:
        """Take the weight of the batch of the next update from the user's step."""
        number = as_weight(weight, "optim.weigh")
        self.source.say(number)
        self._said = self.source.relative(number)
        self.expect_difference()

    def factor(self, share: int, is_first: bool) -> float:
        """Return the factor of the loss of a batch, one of `share` batches of a window."""
        own, self._said = self.source.now() if self._said is None else self._said, None
        if share == 1:
            self._added, whole = 1.0, self._mean(own) if self.differ else own
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
        return self._mean(self.mass) if self._exchanges else self.mass

    def _mean(self, number: float) -> float:
        """Return the mean of a number over all processes."""
        total = self.strategy.reduce_sum(torch.tensor(number, dtype=torch.float64))
        return float(total) / self.strategy.world_size

    def state_dict(self) -> dict[str, Any]:
        """Return the weights of an open window, as data for a checkpoint. They are the same in all processes."""
        return {"mass": self._whole_mass(), "unit": self._unit, "exchanges": self._exchanges}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the weights of an open window."""
        self.mass, self._unit = state["mass"], state.get("unit", 1.0)
        self._exchanges = state.get("exchanges", False)


def _no_weight(what: str) -> DataError:
    return DataError(
        f"all batches of this {what} have the weight 0, in all processes, so it has no mean; let weigh return at least "
        "1, or skip such batches with runner.skip_step"
    )

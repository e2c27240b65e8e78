"""The weight of a batch: how much it counts in an accumulation window, over processes, and in mean losses and metrics.

The first of these decides:

    weigh(batch)     what the user says: the number of tokens, for example
    the loader       the number of samples that it put together
    len(batch)       of a class of the user
    a guess          the first dimension of the last tensor; it is named once if it makes a difference
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import TYPE_CHECKING, Any

from torch import Tensor

from hookline.errors import ConfigError

if TYPE_CHECKING:
    from hookline.data.batches import Batches

log = logging.getLogger("hookline")


class Weigher:
    """Weighs the batches of a loop.

    Args:
        function: The function of a batch that the user gave, if any.
        loop: The name of the loop, for messages.
    """

    def __init__(self, function: Callable[[Any], Any] | None, loop: str) -> None:
        if function is not None and not callable(function):
            raise ConfigError(f"{loop}: weigh must be a function of a batch that returns its weight, not {function!r}")
        self.function, self._loop = function, loop
        #: The first guess, or 0; None after guesses were named.
        self._guess: int | None = 0

    def __call__(self, batches: Batches, number: int, batch: Any, outputs: Any = None) -> float:
        """Return the weight of batch `number` of a pass. `outputs` are only looked at to guess it."""
        if batches.is_padding(number):
            return 0
        if self.function is not None:
            return as_weight(self.function(batch), f"{self._loop}: weigh")
        samples = batches.samples(number)
        if samples is None:
            samples = own_length(batch)
        return self._guessed(batch, outputs) if samples is None else samples

    def weight_of_all(self, batches: Iterable[Any]) -> int | None:
        """Return the weight that all of these batches show; None if they differ, or show none."""
        weights = {size if (size := own_length(batch)) is not None else guess(batch) for batch in batches}
        return weights.pop() if len(weights) == 1 else None

    def _guessed(self, batch: Any, outputs: Any) -> int:
        size = guess(outputs, batch)
        if self._guess == 0 and size:
            self._guess = size
        elif self._guess is not None and (size is None or size != self._guess):
            self._guess = None
            what = "nothing shows its samples" if size is None else "the length of its last tensor"
            log.warning(
                "%s: a batch (%s) is weighed by a guess: %s, %s; set weigh to a function of a batch, or give the class "
                "of the batch a length",
                *(self._loop, type(batch).__name__, size or 1, what),
            )
        return size or 1


def as_weight(given: Any, who: str) -> float:
    """Return a weight as a number. Refuse anything but a finite number that is not negative."""
    try:
        weight = float(given)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # torch raises a RuntimeError for several elements
        weight = math.nan
    if isinstance(given, str) or not 0 <= weight < math.inf:
        raise ConfigError(f"{who} must be a number of at least 0 for a batch, such as its tokens, not {given!r}")
    return weight


def own_length(batch: Any) -> int | None:
    """Return the length of a batch of a class of the user, or of a tensor; None for a collection of other things."""
    if isinstance(batch, Tensor):
        return batch.shape[0] if batch.ndim else None
    if isinstance(batch, (tuple, list, Mapping, str, bytes)) or not isinstance(batch, Sized):
        return None
    return len(batch)


def batch_size(*candidates: Any) -> int:
    """Return a guess of the number of samples of a batch; 1 if nothing shows it."""
    return guess(*candidates) or 1


def guess(*candidates: Any) -> int | None:
    """Return the first dimension of the last tensor of a batch, which usually is the target, or the length of a list.

    Return None if a batch has neither.
    """
    for candidate in candidates:
        for value in reversed(_parts(candidate)):
            if isinstance(value, Tensor) and value.ndim:
                return value.shape[0]
    last = candidates[-1]
    return len(last) if isinstance(last, (tuple, list)) else None


def _parts(batch: Any) -> list[Any]:
    """Return the parts of a batch that may be tensors: items, values, or the attributes of an object."""
    if isinstance(batch, Mapping):
        return list(batch.values())
    if isinstance(batch, (tuple, list)):
        return list(batch)
    return [batch] if isinstance(batch, Tensor) else list(getattr(batch, "__dict__", {}).values())

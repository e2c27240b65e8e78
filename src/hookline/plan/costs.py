"""Per-hook timing, sampled during training so that the overhead is negligible.

Calls that happen now and then are always timed. Calls that happen in every iteration are timed in one of 31 iterations,
and the total is extrapolated from these. 31 has no divisor in common with the intervals that people choose, so the
sample does not miss a hook that works every 10 iterations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from hookline.plan.calls import Call

# One of this many iterations is measured. The very first one is left out, because it is slower than all others.
PERIOD, FIRST = 31, 1

# The calls that are timed: none, those that happen now and then, or all.
Measuring = Literal["none", "rare", "all"]


@dataclass
class Cost:
    """The seconds that one method has taken, in all of its calls or in the measured iterations."""

    seconds: float = 0.0


def total_seconds(calls: Iterable[Call], iterations: int) -> float:
    """Return the seconds that these calls have taken in this many iterations."""
    measured = len(range(FIRST, iterations, PERIOD))
    share = iterations / measured if measured else 0.0
    return sum(call.cost.seconds * (share if call.is_frequent else 1.0) for call in calls)

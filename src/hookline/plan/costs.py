"""What each hook costs, in seconds, found out while the run goes on and next to nothing slower.

What comes once in a while is measured every time. What comes in every iteration is measured in one of 31, and the rest
is taken to be like it: 31 has no divisor in common with what people choose as intervals, so none is always missed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from hookline.plan.calls import Call

# One iteration of so many is measured; not the first, which is slower than all others.
PERIOD, FIRST = 31, 1

# Of which methods the time is taken: none, those that come once in a while, or all.
Measuring = Literal["none", "rare", "all"]


@dataclass
class Cost:
    """The seconds that one method has taken, in all calls or in those of the iterations that were measured."""

    seconds: float = 0.0


def seconds_of(calls: Iterable[Call], iterations: int) -> float:
    """The seconds that these calls have taken in so many iterations."""
    measured = len(range(FIRST, iterations, PERIOD))
    share = iterations / measured if measured else 0.0
    return sum(call.cost.seconds * (share if call.comes_often else 1.0) for call in calls)

"""The time that the loop usually stays in one place, learned during the run."""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, field

#: A stay counts as too long after this many times its usual duration, but never before FLOOR seconds.
FACTOR, FLOOR = 5.0, 5.0
#: Before a section was passed this many times, its usual duration is unknown.
ENOUGH = 3
#: The number of longest stays of a section that are kept: enough for the 99th percentile of 3,200.
KEPT = 32


@dataclass(frozen=True)
class Place:
    """The place of the loop.

    Args:
        section: The part of the loop, for messages: `hook EMAHook at after_train_iter`.
        waits: True if it waits there for another process.
        frequent: True if every iteration comes through this section.
        step: The number of finished iterations.
        turn: Anything that differs between two passages through a section in the same iteration.
    """

    section: str
    waits: bool = False
    frequent: bool = False
    step: int = 0
    turn: int = 0

    def __str__(self) -> str:
        return f"in {self.section}, iteration {self.step + 1}"


@dataclass
class _Stays:
    count: int = 0
    longest: list[float] = field(default_factory=list)  # a heap, whose first entry is the least


class Stays:
    """The durations of the stays in each section. A place is looked at now and then, so a short stay may be unseen."""

    def __init__(self, unknown: float) -> None:
        #: The limit for a section whose usual duration is unknown, in seconds.
        self.unknown = max(unknown, FLOOR)
        self._of: dict[tuple[str, bool], _Stays] = defaultdict(_Stays)
        self._passed = 0

    def add(self, place: Place, seconds: float, steps: int) -> None:
        """Add a stay that is over, and the iterations that have ended since then."""
        stays = self._of[place.section, place.waits]
        stays.count += 1
        (heapq.heappush if len(stays.longest) < KEPT else heapq.heappushpop)(stays.longest, seconds)
        self._passed += steps

    def limit(self, place: Place) -> float:
        """Return after how many seconds a stay is too long."""
        stays = self._of.get((place.section, place.waits), _Stays())
        count = max(stays.count, self._passed) if place.frequent else stays.count
        if count < ENOUGH:
            return self.unknown
        above = count // 100  # this many stays are longer than the 99th percentile
        usual = sorted(stays.longest, reverse=True)[above] if above < len(stays.longest) else 0.0
        return max(FLOOR, FACTOR * usual)

"""The cost of one thing that a run does again and again: calls and seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

# One of this many iterations is measured. The very first one is left out, because it is slower than all others. 31 has
# no divisor in common with the intervals that people choose, so the sample does not miss a hook that works every 10
# iterations.
PERIOD, FIRST = 31, 1
#: A call that took this many times as long as the others is unusual.
FAR = 4.0

# The calls that are timed: none, those that happen now and then, or all.
Measuring = Literal["none", "rare", "all"]


@dataclass(eq=False, slots=True)
class Cost:
    """The sums of measurements: of all calls, or, at points of every iteration, of the measured iterations."""

    calls: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    #: Estimates for the time before the current measuring began.
    calls_before: float = 0.0
    seconds_before: float = 0.0

    def reset(self) -> None:
        """Forget everything, at the beginning of a session."""
        self.calls = 0
        self.seconds = self.longest = self.calls_before = self.seconds_before = 0.0

    def add(self, seconds: float) -> None:
        """Add one call."""
        self.calls += 1
        self.seconds += seconds
        if seconds > self.longest:
            self.longest = seconds

    def settle(self, scale: float) -> None:
        """Turn the measurements so far into an estimate, before measuring in another way."""
        self.calls_before += self.calls * scale
        self.seconds_before += self.seconds * scale
        self.calls, self.seconds = 0, 0.0

    def total(self, scale: float = 1.0, stretch: float = 1.0) -> Total:
        """Return the cost of all calls, if `scale` times as many happened as were measured.

        `stretch` multiplies the estimate for the time before. It is 1 if something was measured since.
        """
        calls = self.calls_before * stretch + self.calls * scale
        seconds = self.seconds_before * stretch + self._seconds_of(self.calls * scale)
        return Total(round(calls), seconds, self.longest, self.calls)

    def _seconds_of(self, calls: float) -> float:
        """Return the seconds of this many calls, estimated from the measured ones.

        One call that took longer than all others together, and far longer than each, is no sign of more such calls: it
        may have been an import.
        """
        others = self.seconds - self.longest
        usual = others / (self.calls - 1) if self.calls > 1 else math.inf
        if self.longest > max(others, FAR * usual) and not self.calls_before:
            return self.longest + usual * (calls - 1)
        return self.seconds / self.calls * calls if self.calls else 0.0


@dataclass(frozen=True)
class Total:
    """The cost of all calls, measured or estimated."""

    calls: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    #: How many of the calls were measured.
    measured: int = 0

    def __add__(self, other: Total) -> Total:
        return Total(
            self.calls + other.calls,
            self.seconds + other.seconds,
            max(self.longest, other.longest),
            self.measured + other.measured,
        )

    @property
    def mean(self) -> float:
        """Return the seconds of a usual call."""
        return self.seconds / self.calls if self.calls else 0.0

    def to_dict(self) -> dict[str, float]:
        """Return the cost as plain data."""
        times = {"seconds": self.seconds, "mean": self.mean, "longest": self.longest}
        return {"calls": self.calls, "measured": self.measured, **times}

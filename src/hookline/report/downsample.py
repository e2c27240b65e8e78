"""Curves of any length in bounded memory. The least and the greatest value of every stretch are kept.

A curve begins with one bucket per value. Whenever there are too many buckets, neighbors are merged. So a curve with few
values is exact, and in a long one every spike is still there, at its own step.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: A curve has at most twice as many buckets as this.
BUCKETS = 1024
#: This many values are collected before they are put into buckets.
BLOCK = 4096
#: Stands for no step. Records of other programs may have negative ones.
NO_GAP = np.iinfo(np.int64).min

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Buckets:
    """The buckets of a curve as columns, in the order of the values."""

    def __init__(self, steps: Ints, values: Floats) -> None:
        finite = np.isfinite(values)
        self.low = np.where(finite, values, np.inf)
        self.high = np.where(finite, values, -np.inf)
        self.low_step = self.high_step = steps
        self.total = np.where(finite, values, 0.0)
        self.count = finite.astype(np.int64)
        #: The first step with a NaN or an Inf in a bucket, if there is one.
        self.gap = np.where(finite, NO_GAP, steps)

    def __len__(self) -> int:
        return len(self.low)

    def extend(self, other: Buckets) -> None:
        """Add the buckets of another part of the curve."""
        for name in vars(self):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(other, name)]))

    def merged(self) -> Buckets:
        """Return half as many buckets. With an odd number of them, the last one does not change."""
        size = len(self) // 2 * 2
        one, two, rest = slice(0, size, 2), slice(1, size, 2), slice(size, None)
        new = Buckets.__new__(Buckets)
        lower = self.low[two] < self.low[one]
        higher = self.high[two] > self.high[one]
        columns: dict[str, NDArray[Any]] = {
            "low": np.minimum(self.low[one], self.low[two]),
            "high": np.maximum(self.high[one], self.high[two]),
            "low_step": np.where(lower, self.low_step[two], self.low_step[one]),
            "high_step": np.where(higher, self.high_step[two], self.high_step[one]),
            "total": self.total[one] + self.total[two],
            "count": self.count[one] + self.count[two],
            "gap": np.where(self.gap[one] != NO_GAP, self.gap[one], self.gap[two]),
        }
        for name, column in columns.items():
            setattr(new, name, np.concatenate([column, getattr(self, name)[rest]]))
        return new


class Curve:
    """One metric: buckets of its values, and what must be exact: the number of values, the first and the last one."""

    def __init__(self, exact: int = 0) -> None:
        #: The first `exact` values as they are, for comparisons.
        self.exact: list[tuple[Ints, Floats]] = []
        self._room = exact
        self._buckets = Buckets(np.empty(0, np.int64), np.empty(0))
        self._width = 1
        self._waiting: list[tuple[Ints, Floats]] = []
        self._waits = 0
        #: The number of values, and of those that are not finite.
        self.count = 0
        self.gaps = 0
        self.first: tuple[int, float] | None = None
        self.last: tuple[int, float] | None = None

    def add(self, steps: Ints, values: Floats) -> None:
        """Add values in the order of the run."""
        if not len(values):
            return
        self.first = self.first or (int(steps[0]), float(values[0]))
        self.last = int(steps[-1]), float(values[-1])
        self.count += len(values)
        self.gaps += int(np.count_nonzero(~np.isfinite(values)))
        if self._room > 0:
            self.exact.append((steps[: self._room], values[: self._room]))
            self._room -= len(values)
        self._waiting.append((steps, values))
        self._waits += len(values)
        if self._waits >= max(BLOCK, self._width):
            self._settle()

    def _settle(self) -> None:
        """Put the waiting values into buckets, as far as they fill them."""
        if not self._waits:
            return
        steps = np.concatenate([each for each, _ in self._waiting])
        values = np.concatenate([each for _, each in self._waiting])
        new, width = Buckets(steps, values), 1
        while width < self._width:
            new, width = new.merged(), width * 2
        self._buckets.extend(new)
        self._waiting, self._waits = [], 0
        while len(self._buckets) > 2 * BUCKETS:
            self._buckets = self._buckets.merged()
            self._width *= 2

    @property
    def buckets(self) -> Buckets:
        """Return the buckets of all values so far."""
        self._settle()
        return self._buckets

    @property
    def is_exact(self) -> bool:
        """Return whether every value is still there."""
        self._settle()
        return self._width == 1

    def lowest(self) -> tuple[int, float] | None:
        """Return the step and the value of the minimum; None without a finite value."""
        found = self.buckets
        if not found.count.any():
            return None
        at = int(np.argmin(found.low))
        return int(found.low_step[at]), float(found.low[at])

    def highest(self) -> tuple[int, float] | None:
        """Return the step and the value of the maximum; None without a finite value."""
        found = self.buckets
        if not found.count.any():
            return None
        at = int(np.argmax(found.high))
        return int(found.high_step[at]), float(found.high[at])

    def points(self, limit: int) -> dict[str, Any]:
        """Return at most about `limit` points as plain data, sorted by step, with None where a value is not finite.

        If values were left out, `mean_steps` and `means` have the mean of every bucket: smoothing needs them.
        """
        found, exact = self.buckets, self.is_exact
        while 2 * len(found) > limit and len(found) > 1 and not (exact and len(found) <= limit):
            found, exact = found.merged(), False
        filled = found.count > 0
        steps = [found.low_step[filled], found.gap[found.gap != NO_GAP]]
        values = [found.low[filled], np.full(int((found.gap != NO_GAP).sum()), np.nan)]
        if not exact:
            more = filled & (found.high_step != found.low_step)
            ends = [each for each in (self.first, self.last) if each is not None]
            steps += [found.high_step[more], np.array([step for step, _ in ends], np.int64)]
            values += [found.high[more], np.array([value for _, value in ends])]
        plain = _plain(np.concatenate(steps), np.concatenate(values))
        if exact:
            return plain
        middles = (found.low_step[filled] + found.high_step[filled]) // 2
        means = _plain(middles, found.total[filled] / found.count[filled])
        return {**plain, "mean_steps": means["steps"], "means": means["values"]}


def _plain(steps: Ints, values: Floats) -> dict[str, Any]:
    """Return points sorted by step as lists. Of several values at one step, those that differ are kept."""
    order = np.lexsort((values, steps))
    steps, values = steps[order], values[order]
    same = np.zeros(len(steps), bool)
    same[1:] = (steps[1:] == steps[:-1]) & (
        (values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1]))
    )
    return {"steps": steps[~same].tolist(), "values": [rounded(each) for each in values[~same].tolist()]}


def rounded(value: float, digits: int = 6) -> float | None:
    """Return a number with this many significant digits, which is all that a page shows; None if it is not finite.

    >>> rounded(0.123456789), rounded(float("nan")), rounded(3.0)
    (0.123457, None, 3.0)
    """
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None

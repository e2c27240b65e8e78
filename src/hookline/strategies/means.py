"""Means over processes: of the numbers of several records, with one all-reduce.

The processes do not wait for each other at every record. They put records off, and exchange them together about every
PERIOD seconds, at the end of an epoch, and before anything is saved.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import distributed

from hookline.record.history import Extreme, Weighted, mean_of

if TYPE_CHECKING:
    from hookline.strategies.group import Group

Numbers = dict[str, float]

#: The seconds between two exchanges, and how many records may wait for one.
PERIOD, MOST = 0.25, 100


class Means:
    """Averages named numbers over the processes, which all give as many records in the same order.

    All processes know the same names, from the exchanges before. So they add up sums and weights in the order of these
    names. The names themselves are only exchanged if a process has a new one, or an extreme or a number of weight 0,
    which all learn from the same sum.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._names: list[str] = []
        self._waiting: list[tuple[Numbers, Callable[[Numbers], None]]] = []
        #: The number of records that are exchanged at once, chosen from the time between them.
        self._at_once = 1
        self._exchanged = 0.0

    def add(self, numbers: Numbers, use: Callable[[Numbers], None], wait: Callable[[], None]) -> None:
        """Put off a record. `use` is called with its means."""
        distributed.get_rank()  # raises an error where only one process is
        wait()
        self._waiting.append((numbers, use))
        if len(self._waiting) >= self._at_once:
            self.settle()

    def settle(self) -> None:
        """Exchange all records that wait. All processes come here at the same iteration."""
        if self._waiting:
            means = self._average([numbers for numbers, _ in self._waiting])
            waiting, self._waiting = self._waiting, []
            for (_, use), found in zip(waiting, means, strict=True):
                use(found)

    def settle_alone(self) -> None:
        """Use the numbers of this process alone, because the others are gone."""
        waiting, self._waiting = self._waiting, []
        for numbers, use in waiting:
            use(numbers)

    def _average(self, records: list[Numbers]) -> list[Numbers]:
        """Return the mean of each number over the processes that have it. A weighted one counts by its weight."""
        now, names = time.monotonic(), self._names
        seconds = (now - self._exchanged) / len(records) if self._exchanged else PERIOD
        rows = [0.0, seconds]
        for numbers in records:
            weights = {name: value.weight if isinstance(value, Weighted) else 1.0 for name, value in numbers.items()}
            plain = all(weights.values()) and Extreme not in set(map(type, numbers.values()))
            if not plain or not weights.keys() <= set(names):
                rows[0] = 1.0
            rows += [numbers[name] * weights[name] if name in numbers else 0.0 for name in names]
            rows += [weights.get(name, 0.0) for name in names]
        sums = self._group.reduce(torch.tensor(rows, dtype=torch.float64), distributed.ReduceOp.SUM)
        differing, seconds, *found = sums.tolist()
        self._at_once = min(MOST, max(1, round(PERIOD * self._group.world_size / max(seconds, 1e-9))))
        self._exchanged = time.monotonic()
        if differing:
            return self._exchange_names(records)
        rest, means = iter(found), []
        for _ in records:
            totals, divisors = list(islice(rest, len(names))), list(islice(rest, len(names)))
            each = zip(names, totals, divisors, strict=True)
            means.append({name: total / divisor for name, total, divisor in each if divisor})
        return means

    def _exchange_names(self, records: list[Numbers]) -> list[Numbers]:
        """Return the means by the names of all processes, and remember these."""
        together = zip(*self._group.gather(records), strict=True)
        means = [
            {
                name: _together([each[name] for each in same if name in each])
                for name in dict.fromkeys(name for each in same for name in each)
            }
            for same in together
        ]
        self._names = list(dict.fromkeys([*self._names, *(name for found in means for name in found)]))
        return means


def _together(values: list[float]) -> float:
    """Return the mean of the values of several processes, or the least or greatest one of extremes."""
    first = values[0]
    if isinstance(first, Extreme):
        return min(values) if first.rule == "min" else max(values)
    return mean_of(values)

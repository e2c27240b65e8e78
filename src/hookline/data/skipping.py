"""Batches that a run leaves out, by their absolute position: the step that would get them if nothing was left out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from hookline.common.escape import escaped
from hookline.errors import ConfigError

#: A batch or a range of batches, as it is written.
RANGE = re.compile(r"\s*([0-9]{1,15})\s*(?:-\s*([0-9]{1,15})\s*)?")
#: The most ranges of a run.
MOST = 10_000


class Skip:
    """Batches to leave out, in sorted ranges. Places are counted from 0, over all passes or in one pass.

    >>> skip = parse_skip(["3-5", 8])
    >>> len(skip), 3 in skip, [skip.place(number) for number in range(5)]
    (4, True, [0, 1, 5, 6, 8])
    >>> skip.of_pass(1, length=5).words, skip.before(4).words
    (['3'], ['3-4'])
    """

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        #: The first and the last place of each range.
        self.ranges = sorted(ranges)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def __contains__(self, place: object) -> bool:
        return isinstance(place, int) and any(first <= place <= last for first, last in self.ranges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Skip) and self.ranges == other.ranges

    __hash__ = None  # type: ignore[assignment]  # compared, and no key

    def place(self, number: int) -> int:
        """Return the place of a batch that is used, by its number among those that are used."""
        for first, last in self.ranges:
            if number < first:
                break
            number += last - first + 1
        return number

    def within(self, begin: int, end: int) -> Skip:
        """Return the part that is in `[begin, end)`, with places counted from `begin`."""
        cut = ((max(first, begin), min(last, end - 1)) for first, last in self.ranges)
        return Skip((first - begin, last - begin) for first, last in cut if first <= last)

    def before(self, place: int) -> Skip:
        """Return the part before a place."""
        return self.within(0, place)

    def of_pass(self, epoch: int, length: int) -> Skip:
        """Return the part in a pass of `length` batches, with places counted from its beginning."""
        return self.within(epoch * length, (epoch + 1) * length)

    def without(self, other: Skip) -> Skip:
        """Return the part that is not in another one."""
        left = self.ranges
        for begin, end in other.ranges:
            left = [
                part
                for first, last in left
                for part in ((first, min(last, begin - 1)), (max(first, end + 1), last))
                if part[0] <= part[1]
            ]
        return Skip(left)

    @property
    def words(self) -> list[str]:
        """Return the ranges as they are written: the batch of step 1 is 1."""
        return [f"{first + 1}" if first == last else f"{first + 1}-{last + 1}" for first, last in self.ranges]

    def __str__(self) -> str:
        return ", ".join(self.words)


def parse_skip(given: Any, who: str = "skip") -> Skip:
    """Read batches: numbers and ranges such as `8120-8130`, in a list or alone. Refuse anything else."""
    items = [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]
    if len(items) > MOST:
        raise ConfigError(f"{who} has {len(items):,} entries, more than {MOST:,}; leave the samples out of the data")
    found = sorted(_range(item, who) for item in items)
    for one, other in pairwise(found):
        if other[0] <= one[1]:
            raise ConfigError(f"{who}: {Skip([one])} and {Skip([other])} overlap; name each batch once")
    return Skip(_merged(found))


def _range(item: Any, who: str) -> tuple[int, int]:
    numbers = (item, item) if type(item) is int else (0, 0)
    if isinstance(item, str) and (parts := RANGE.fullmatch(item)):
        numbers = int(parts[1]), int(parts[2] or parts[1])
        if 0 < numbers[1] < numbers[0]:
            raise ConfigError(f"{who}: {item.strip()} ends before it begins; write {numbers[1]}-{numbers[0]}")
    if not 1 <= numbers[0] <= numbers[1] < 1 << 53:
        shown = escaped(repr(item)[:100])
        raise ConfigError(f"{who} must have numbers of batches, from 1, or ranges such as 8120-8130, not {shown}")
    return numbers[0] - 1, numbers[1] - 1


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges that follow each other without a gap."""
    joined: list[tuple[int, int]] = []
    for first, last in ranges:
        if joined and first == joined[-1][1] + 1:
            joined[-1] = joined[-1][0], last
        else:
            joined.append((first, last))
    return joined

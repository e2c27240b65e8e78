"""Work that is repeated now and then, but never takes more than a small share of the time."""

from __future__ import annotations

import math

#: Between two rounds of work, at least this many times as long passes as the last round took.
SPARSE = 2000


class Pace:
    """Decides when some work is due again: after a gap, and so seldom that it takes at most 0.05% of the time."""

    def __init__(self, gap: float) -> None:
        #: The seconds between two rounds.
        self.gap = gap
        self._ended = -math.inf
        self._took = 0.0

    def is_due(self, now: float, gap: float | None = None) -> bool:
        """Return whether the work is due at this time. Another gap may be given for this round."""
        wanted = self.gap if gap is None else gap
        return now - self._ended >= max(wanted, SPARSE * self._took)

    def done(self, began: float, ended: float) -> None:
        """Note when a round of work began and ended."""
        self._ended, self._took = ended, ended - began

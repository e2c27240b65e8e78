"""What a comparison found: the times of every engine with every model, and what failed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from engines.task import Times

#: The name of the loop without an engine.
BARE = "bare loop"


class Engine(NamedTuple):
    """An engine: its name, the module that trains with it, and the package whose version is shown."""

    name: str
    module: str
    package: str


class Case(NamedTuple):
    """One cell of the result."""

    engine: str
    model: str
    everything: bool


class Summary(NamedTuple):
    """What one case took: microseconds per step, the spread of the rounds, and milliseconds around the steps."""

    wall: float
    cpu: float
    spread: float
    start: float
    end: float


class Results:
    """The times of all runs so far, and the cases that have none, with the reason."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.engines = engines
        self.times: dict[Case, list[Times]] = {}
        self.failures: dict[Case, str] = {}

    def summary(self, case: Case) -> Summary | None:
        """Return the minimum over the rounds of one case. The spread is how far the median is above the minimum."""
        if case in self.failures or case not in self.times:
            return None
        wall, cpu, start, end = zip(*self.times[case], strict=True)
        spread = statistics.median(wall) / min(wall) - 1
        return Summary(min(wall) * 1e6, min(cpu) * 1e6, spread, min(start) * 1e3, min(end) * 1e3)

    def ratios(self, engine: str, model: str, everything: bool) -> tuple[float, float] | None:
        """Return the wall-clock time and the CPU time of a step, as ratios to a bare loop with nothing else."""
        found, base = self.summary(Case(engine, model, everything)), self.summary(Case(BARE, model, False))
        return None if found is None or base is None else (found.wall / base.wall, found.cpu / base.cpu)

    def reasons(self) -> dict[str, list[str]]:
        """Return why cases have no figures, by engine. The same reason is listed once."""
        found: dict[str, list[str]] = {}
        for case, reason in self.failures.items():
            known = found.setdefault(case.engine, [])
            if reason not in known:
                known.append(reason)
        return found

"""Measure the published figures about faults: `python -m tests.faults.figures --kills 200`.

    KILL    200 of 200 resumes after kill -9 were bit-exact
    CODE    0 of 140 hostile inputs executed code
    SILENT  0 of 218 bad inputs ended with exit code 0

The exit code is 1 if a figure is wrong. The inputs that caused it are listed below the figure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.faults import hostile, silent
from tests.faults.cases import Case, Outcome, run
from tests.faults.kills import KINDS, Kills, kill_and_resume
from tests.faults.project import trained_run

# The number of children that run at the same time, each on one core.
AT_ONCE = 2


@dataclass(frozen=True)
class Figure:
    """One printed line: the number of inputs, and the inputs that did what no input should do."""

    name: str
    what: str
    total: int
    culprits: list[str]

    def __str__(self) -> str:
        line = f"{self.name:<7} {len(self.culprits)} of {self.total} {self.what}"
        return "\n".join([line, *(f"          {culprit}" for culprit in self.culprits)])


def measure_code() -> Figure:
    """Count the hostile configs and checkpoints that made the process do more than read them."""
    return _measure("CODE", "hostile inputs executed code", hostile.cases(), lambda outcome: outcome.ran_code)


def measure_silence() -> Figure:
    """Count the bad inputs after which the command reported success."""
    return _measure("SILENT", "bad inputs ended with exit code 0", silent.cases(), lambda outcome: outcome.code == 0)


def measure_kills(times: int) -> Kills:
    """Kill runs of every kind, `times` kills in total, and resume them."""
    shares = [times // len(KINDS) + (number < times % len(KINDS)) for number in range(len(KINDS))]
    with TemporaryDirectory(prefix="hookline-kills-") as folder, ThreadPoolExecutor(AT_ONCE) as pool:

        def kill_share(kind: str, share: int) -> Kills:
            root = Path(folder, kind)
            root.mkdir()
            return kill_and_resume(root, kind, share, seed=times)

        found = list(pool.map(kill_share, KINDS, shares))
    total = Kills()
    for each in found:
        total.kills += each.kills
        total.identical += each.identical
        total.failures += each.failures
    return total


def _measure(name: str, what: str, cases: Sequence[Case], is_culprit: Callable[[Outcome], bool]) -> Figure:
    trained_run()  # trained once, before several threads need it
    with TemporaryDirectory(prefix="hookline-faults-") as folder, ThreadPoolExecutor(AT_ONCE) as pool:

        def outcome_of(case: Case) -> Outcome:
            root = Path(folder, case.id)
            root.mkdir()
            return run(case, root)

        outcomes = list(pool.map(outcome_of, cases))
    culprits = [case.id for case, outcome in zip(cases, outcomes, strict=True) if is_culprit(outcome)]
    return Figure(name, what, len(cases), culprits)


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print the figures; return 1 if one is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.figures")
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="also measure KILL, with N kills")
    kills: int = parser.parse_args(words).kills
    figures: list[Figure] = []
    killed = measure_kills(kills) if kills else Kills()
    if kills:
        print(f"KILL    {killed.identical} of {killed.kills} resumes after kill -9 were bit-exact")
        print("".join(f"          {failure}\n" for failure in killed.failures), end="", flush=True)
    for measure in (measure_code, measure_silence):
        figures.append(measure())
        print(figures[-1], flush=True)
    wrong = killed.identical != killed.kills or killed.failures or any(figure.culprits for figure in figures)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

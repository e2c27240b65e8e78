"""What is published about faults, measured: `python -m tests.faults.figures`.

    KILL    200 kill -9, 200 resumes with the state of the unbroken run
    CODE    0 of 136 hostile inputs ran code
    SILENT  0 of 215 bad inputs ended with exit code 0

Exit code 1 when a figure is not as it should be; what made it so is listed under it.
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

# Children, each of them busy with one core.
AT_ONCE = 2


@dataclass(frozen=True)
class Figure:
    """One line: of how many inputs how many did what none should, and which."""

    name: str
    what: str
    total: int
    culprits: list[str]

    def __str__(self) -> str:
        line = f"{self.name:<7} {len(self.culprits)} of {self.total} {self.what}"
        return "\n".join([line, *(f"          {culprit}" for culprit in self.culprits)])


def code() -> Figure:
    """Hostile configs and checkpoints that made the process do more than read them."""
    return _measure("CODE", "hostile inputs ran code", hostile.cases(), lambda outcome: outcome.ran_code)


def silence() -> Figure:
    """Bad inputs after which the command said that all was well."""
    return _measure("SILENT", "bad inputs ended with exit code 0", silent.cases(), lambda outcome: outcome.code == 0)


def kill(times: int) -> Kills:
    """Runs of every kind, killed so many times in all, and resumed."""
    shares = [times // len(KINDS) + (number < times % len(KINDS)) for number in range(len(KINDS))]
    with TemporaryDirectory(prefix="hookline-kills-") as folder, ThreadPoolExecutor(AT_ONCE) as pool:

        def some(kind: str, share: int) -> Kills:
            root = Path(folder, kind)
            root.mkdir()
            return kill_and_resume(root, kind, share, seed=times)

        found = list(pool.map(some, KINDS, shares))
    total = Kills()
    for each in found:
        total.kills += each.kills
        total.identical += each.identical
        total.failures += each.failures
    return total


def _measure(name: str, what: str, cases: Sequence[Case], is_culprit: Callable[[Outcome], bool]) -> Figure:
    trained_run()  # once, before several ask for it
    with TemporaryDirectory(prefix="hookline-faults-") as folder, ThreadPoolExecutor(AT_ONCE) as pool:

        def outcome_of(case: Case) -> Outcome:
            root = Path(folder, case.id)
            root.mkdir()
            return run(case, root)

        outcomes = list(pool.map(outcome_of, cases))
    culprits = [case.id for case, outcome in zip(cases, outcomes, strict=True) if is_culprit(outcome)]
    return Figure(name, what, len(cases), culprits)


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when a figure is not 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.figures")
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="kill so many runs too, for the figure KILL")
    kills: int = parser.parse_args(words).kills
    figures: list[Figure] = []
    killed = kill(kills) if kills else Kills()
    if kills:
        print(f"KILL    {killed.kills} kill -9, {killed.identical} resumes with the state of the unbroken run")
        print("".join(f"          {failure}\n" for failure in killed.failures), end="", flush=True)
    for measure in (code, silence):
        figures.append(measure())
        print(figures[-1], flush=True)
    wrong = killed.identical != killed.kills or killed.failures or any(figure.culprits for figure in figures)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""What is published about faults, measured: `python -m tests.faults.figures`.

    CODE    0 of 136 hostile inputs ran code
    SILENT  0 of 215 bad inputs ended with exit code 0

Exit code 1 when a figure is not 0; the inputs that made it so are listed under it.
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
    if kills:
        print(f"KILL    not measured: nothing here kills {kills} runs yet", flush=True)
    figures = []
    for measure in (code, silence):
        figures.append(measure())
        print(figures[-1], flush=True)
    return 1 if any(figure.culprits for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Milestones: what a run has to reach before a hook does something. The report names hooks that wait in vain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: The units that a run counts. An epoch is a pass over the data; an evaluation is a validation or a test.
Counted = Literal["iteration", "epoch", "update", "validation", "test", "evaluation"]

UNITS: dict[str, str] = {
    "iteration": "iteration",
    "epoch": "epoch",
    "update": "optimizer step",
    "validation": "validation",
    "test": "test",
    "evaluation": "validation or test",
    "batch": "batch",
}


def quantity(number: int, unit: str) -> str:
    """Return a number of units in words.

    >>> quantity(1, "update"), quantity(0, "validation"), quantity(1000, "batch")
    ('1 optimizer step', 'no validation', '1000 batches')
    """
    word = UNITS[unit]
    if number > 1:
        word += "es" if unit == "batch" else "s"
    return f"{number or 'no'} {word}"


@dataclass(frozen=True)
class Milestone:
    """A count that a run has to reach before a hook does its work for the first time.

    For example, a hook with `interval=100` works for the first time after 100 iterations:
    `Milestone("interval", 100, 100, "iteration", "nothing is recorded")`.
    """

    #: The parameter of the hook that sets it, and its value. Without a parameter, the hook always needs this.
    parameter: str
    value: int
    #: The number of units that a run needs.
    needed: int
    unit: Counted
    #: The consequence if the run ends earlier.
    effect: str

    def describe(self, reached: int) -> str:
        """Explain that the run ends before this milestone.

        >>> Milestone("interval", 100, 100, "iteration", "nothing is recorded").describe(40)
        'interval=100 needs 100 iterations, but this run has 40'
        """
        what = f"{self.parameter}={self.value}" if self.parameter else "it"
        return f"{what} needs {quantity(self.needed, self.unit)}, but this run has {reached or 'none'}"

    def advise(self, reached: int) -> str:
        """Return the change that makes a run long enough which ends before this milestone.

        >>> Milestone("begin", 100, 101, "iteration", "it never begins").advise(40)
        'set begin to at most 39, or train longer'
        """
        if not reached and self.unit in ("validation", "test", "evaluation"):
            stage = "test" if self.unit == "test" else "val"
            return f"add `{stage}` to the Runner or to the config, or remove the hook"
        highest = self.value - (self.needed - reached)
        if self.parameter and highest >= 1:
            return f"set {self.parameter} to at most {highest}, or train longer"
        return "train longer, or remove the hook"

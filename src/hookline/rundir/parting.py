"""Where two runs part, as far as their records show it: the bits of their losses, and all values in their checkpoints.

parting = find("runs/a", "runs/b")
parting.line         "equal to the bit until step 811; the loss of step 812 differs: 0.52, 0.53"
parting.bases        the newest checkpoints of both that are equal, from which both can be replayed
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hookline.checkpoint import digests
from hookline.common.numbers import as_number, count
from hookline.errors import StorageError
from hookline.rundir import loss_bits
from hookline.rundir.runs import Checkpoint, read_checkpoints

#: The parts of a checkpoint that say nothing about the training: facts, records and their times.
IGNORED = ("meta", "message_hub", "writers", "metric_states")
#: The beginning of a place in the states that other processes have for themselves.
RANK = re.compile(r"ranks/[0-9]+/")


@dataclass(frozen=True)
class Parting:
    """What the records of two runs have in common."""

    #: The last step up to which everything that both have recorded is equal.
    equal_until: int
    #: The first step at which a record differs; None if none does.
    differs_at: int | None = None
    #: What differs there: the loss, or a place in a checkpoint.
    what: str = ""
    #: The two losses, if they differ.
    losses: tuple[float | None, float | None] = (None, None)
    #: How many losses and checkpoints were compared.
    compared: tuple[int, int] = (0, 0)
    #: The newest checkpoints of both that are equal, before anything differs.
    bases: tuple[Path, Path] | None = None
    base_step: int = 0

    @property
    def line(self) -> str:
        """Return it as one line."""
        if self.compared == (0, 0):
            return "the runs have no records in common that could be compared bit by bit"
        text = f"equal to the bit until step {self.equal_until}, as far as the records show"
        if self.differs_at is None:
            losses, checkpoints = self.compared
            return f"{text}: {count(losses, 'loss', 'losses')}, {count(checkpoints, 'checkpoint')}"
        shown = ""
        if not self.what.endswith("differs"):
            shown = f"{self.what} differs: " + ", ".join(map(_shown, self.losses))
        return f"{text}; {shown or self.what}"

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "equal_until": self.equal_until,
            "differs_at": self.differs_at,
            "what": self.what,
            "compared": {"losses": self.compared[0], "checkpoints": self.compared[1]},
            "line": self.line,
        }


def find(one: Path, other: Path) -> Parting:
    """Compare the records of two runs."""
    first, second = loss_bits.read(one), loss_bits.read(other)
    place = loss_bits.first_difference(first, second)
    compared = min(len(first), len(second))
    step = None if place is None else place + 1
    at = (None, None) if place is None else (loss_bits.as_loss(first[place]), loss_bits.as_loss(second[place]))
    what, until, bases, checkpoints = f"the loss of step {step}", compared if step is None else step - 1, None, 0
    for a, b in _pairs(one, other):
        assert a.step is not None, "pairs have steps"
        if step is not None and a.step >= step:
            break
        differing = first_difference(a.path, b.path)
        if differing is None:
            continue
        checkpoints += 1
        if differing:
            return Parting(
                bases[2] if bases else 0,
                a.step,
                f"{differing} of {a.path.name} differs",
                compared=(compared, checkpoints),
                bases=bases[:2] if bases else None,
                base_step=bases[2] if bases else 0,
            )
        bases = a.path, b.path, a.step
        until = max(until, a.step) if step is None else until
    return Parting(
        until,
        step,
        what if step is not None else "",
        at,
        (compared, checkpoints),
        bases[:2] if bases else None,
        bases[2] if bases else 0,
    )


def _pairs(one: Path, other: Path) -> list[tuple[Checkpoint, Checkpoint]]:
    """Return the checkpoints that both runs have at the same step, in the order of the steps."""
    known = [
        {each.step: each for each in read_checkpoints(folder) if each.complete and each.step is not None}
        for folder in (one, other)
    ]
    return [(known[0][step], known[1][step]) for step in sorted(known[0].keys() & known[1].keys())]


def first_difference(one: Path, other: Path) -> str | None:
    """Return the first place at which two checkpoints differ; empty if they are equal, None if that is unknown."""
    try:
        a, b = digests.read_all(one), digests.read_all(other)
    except StorageError:
        return None
    known = [{_part_of(place) for place in each} for each in (a, b)]
    for place in dict.fromkeys((*a, *b)):
        part, hook = _part_of(place)
        # A hook that only one of them has is no difference of the training.
        is_compared = part not in IGNORED and (not hook or all((part, hook) in each for each in known))
        if is_compared and a.get(place) != b.get(place):
            return place
    return ""


def _part_of(place: str) -> tuple[str, str]:
    """Return the part of a checkpoint that a place is in, and the hook, if it is the state of one."""
    part, _, rest = RANK.sub("", place).partition("/")
    return part, rest.split("/")[0] if part == "hooks" else ""


def _shown(loss: float | None) -> str:
    return "no loss" if loss is None else as_number(loss, 17)

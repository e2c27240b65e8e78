"""The Python work of a step has fixed limits. Unlike a time, it is the same on every machine.

If a test fails after a change that is worth its cost, `python -m tests.performance.counting CASE` shows where the
instructions are, and the limit here can be raised. If a change makes a step cheaper, lower the limit.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hookline.engine.numerics import KEPT, Losses
from hookline.rundir import loss_bits
from tests.performance.cases import CASES, counted, counted_case, with_writers_and_a_screen
from tests.performance.counting import STEPS, Counted, count_instructions

#: The calls and the instructions per step that each case may have more than a loop written by hand, which also steps a
#: scheduler in every iteration. The loop has 215 and 2,692 with torch 2.13 and Python 3.11.
LIMITS = {
    "no hooks": (0, 60),
    "default hooks": (6, 520),
    "session, no hooks": (0, 171),
    "session, default hooks": (15, 624),
    "everything": (5, 530),
    "mmengine, no hooks": (0, 31),
    "mmengine, default hooks": (5, 560),
    "pointrix, no hooks": (0, 10),
    "imix, minimal hooks": (0, 455),
    "robo_orchard, minimal hooks": (0, 36),
}
#: Other versions of Python have other instructions.
TOLERANCE = 1.0 if sys.version_info[:2] == (3, 11) else 1.3


@pytest.fixture(scope="module")
def bare() -> Counted:
    return counted_case("bare loop")


def test_every_case_has_a_limit() -> None:
    assert LIMITS.keys() == CASES.keys() - {"bare loop"}


@pytest.mark.parametrize("case", LIMITS)
def test_a_step_makes_python_do_no_more_than_its_limit(case: str, bare: Counted) -> None:
    found = counted_case(case)
    calls = found.calls_per_step - bare.calls_per_step
    instructions = found.instructions_per_step - bare.instructions_per_step
    most_calls, most_instructions = LIMITS[case]
    assert calls <= most_calls * TOLERANCE, f"{calls:.1f} calls per step more than a loop by hand"
    assert instructions <= most_instructions * TOLERANCE, f"{instructions:.1f} instructions more than a loop by hand"


def test_the_display_adds_nothing_to_a_step() -> None:
    shown, not_shown = counted_case("everything"), counted(with_writers_and_a_screen())
    assert shown.calls_per_step == not_shown.calls_per_step
    assert shown.instructions_per_step == not_shown.instructions_per_step


def test_the_counts_of_a_known_loop_are_exact() -> None:
    def work() -> int:
        return abs(-1)

    data = Counted(None)
    for _ in data:
        work()
    name = "test_the_counts_of_a_known_loop_are_exact.<locals>.work"
    own = {code: number for code, number in data.calls.items() if getattr(code, "co_qualname", code) in (name, "abs")}
    assert list(own.values()) == [STEPS, STEPS]


def test_the_records_for_a_replay_cost_less_than_an_instruction_per_step(tmp_path: Path) -> None:
    """A thousandth of a step of 0.5 ms is the time of about twenty instructions."""

    def keep(file: int | None) -> int:
        losses = Losses()
        losses.file = file
        losses.extend([0.5] * KEPT)
        return count_instructions(lambda: losses.take(KEPT))

    file = loss_bits.open_at(tmp_path, 0)
    assert file is not None
    recorded, unrecorded = keep(file), keep(None)
    os.close(file)
    assert loss_bits.read(tmp_path) == [0x3FE0_0000_0000_0000] * KEPT
    assert 0 < recorded - unrecorded < KEPT


def test_two_runs_of_a_case_count_the_same() -> None:
    first, second = counted_case("default hooks"), counted_case("default hooks")
    assert first.calls_per_step == second.calls_per_step
    assert first.instructions_per_step == second.instructions_per_step

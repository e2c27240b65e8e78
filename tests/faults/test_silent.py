"""SILENT: a bad input never ends with exit code 0, and one message explains the problem."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import silent
from tests.faults.cases import Case, run


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in silent.cases()])
def test_a_bad_input_ends_with_its_exit_code_and_a_message(case: Case, tmp_path: Path) -> None:
    outcome = run(case, tmp_path)
    assert not outcome.silent, outcome.output
    assert case.code in (None, outcome.code), outcome.output
    assert (outcome.touched, outcome.raw) == ([], []), outcome.output
    assert ("Traceback" in outcome.output) == case.traceback, outcome.output
    if case.says:
        assert outcome.message == case.says
        assert outcome.output.count("hookline: ") == 1
    for part in case.mentions:
        assert part in outcome.output
    assert case.says or case.mentions or case.code in (None, 130)  # an interrupt by the user needs no message


def test_every_case_has_a_unique_name_and_none_expects_success() -> None:
    table = silent.cases()
    assert len({case.id for case in table}) == len(table)
    assert len(table) >= 70
    assert {case.code for case in table} == {1, 2, 3, 4, 5, 6, 130, None}


@pytest.mark.parametrize(
    ("then", "silent"), [((), True), (("hooks", "LogerHook"), True), (("hooks", "LoggerHook"), False)]
)
def test_a_success_is_silent_unless_the_next_command_can_use_it(
    then: tuple[str, ...], silent: bool, tmp_path: Path
) -> None:
    outcome = run(Case("control", 0, words=("hooks",), then=then), tmp_path)
    assert (outcome.code, outcome.silent) == (0, silent)

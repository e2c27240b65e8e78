from __future__ import annotations

from pathlib import Path

import pytest

import startup

pytestmark = [pytest.mark.processes, pytest.mark.long]


def test_every_case_reaches_its_first_step_and_every_command_answers() -> None:
    found = startup.measure(rounds=1)
    assert list(found) == [*startup.CASES, *startup.COMMANDS]
    assert all(len(several) == 1 for several in found.values())
    assert startup.as_table(found).count("\n") == len(found) + 1


def test_a_case_without_a_step_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="made no step: "):
        startup.start(["-c", "pass"], tmp_path)

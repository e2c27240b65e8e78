"""Injected failures are repeated elsewhere, with the same error, step and loss bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.replays import CASES, OF_TWO, Replayed, fail_and_replay


@pytest.mark.parametrize("case", [*CASES, *OF_TWO], ids=lambda case: case.name)
def test_a_failure_is_repeated_with_the_same_error_step_and_bits(case: Replayed, tmp_path: Path) -> None:
    assert fail_and_replay(case, tmp_path) == ""

"""Runs that are run again: what differs between two is found, and the result is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import differences, reproductions, skips


@pytest.mark.parametrize("case", differences.CASES, ids=lambda case: case.name)
def test_a_planted_difference_is_found(case: differences.Planted, tmp_path: Path) -> None:
    differences.train(tmp_path, "run")
    assert differences.find(tmp_path, case) == ""


@pytest.mark.parametrize("case", reproductions.CASES, ids=lambda case: case.name)
def test_a_run_that_is_run_again_has_the_same_result(case: reproductions.Reproduced, tmp_path: Path) -> None:
    assert reproductions.run_and_reproduce(case, tmp_path) == ""


def test_runs_without_batches_equal_runs_that_leave_them_out() -> None:
    assert skips.measure() == (25, [])


def test_1000_of_1000_samples_are_named() -> None:
    assert skips.measure_samples() == (1000, [])

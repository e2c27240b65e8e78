"""Planted causes of NaN are found elsewhere; observers that meddle are named, and built-in hooks are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import planted, triages


@pytest.mark.parametrize("name", triages.CAUSES)
def test_a_cause_of_nan_is_found_in_new_processes(name: str, tmp_path: Path) -> None:
    assert triages.fail_and_find(triages.CAUSES[name], tmp_path) == ""


@pytest.mark.parametrize("name", triages.MEDDLERS)
def test_a_meddler_is_named(name: str, tmp_path: Path) -> None:
    assert triages.meddle_and_verify(name, tmp_path) == ""


@pytest.mark.parametrize("name", triages.BUILT_IN)
def test_a_built_in_hook_is_not_blamed(name: str, tmp_path: Path) -> None:
    assert triages.verify_built_in(name, tmp_path) == ""


def test_there_are_at_least_as_many_as_promised() -> None:
    assert (len(planted.PLANTED) >= 24, len(triages.MEDDLERS)) == (True, 12)

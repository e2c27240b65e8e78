"""The structure keeps its shape: see `tests/structure.py`, which prints these measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.structure import measures, walks

#: The most that is allowed. Lower a number when the structure gets simpler.
MOST = {
    "members of a Runner that are not public": 0,
    "members of Host": 22,
    "methods of Strategy": 27,
    "modules in engine/": 12,
    "source files over 400 lines": 1,
    "requests: Any in strategies": 0,
    "modules in the largest import cycle": 9,
}


def test_no_measure_of_the_structure_grows() -> None:
    grown = {name: number for name, number in measures().items() if number > MOST[name]}
    assert grown == {}, "print them with: python -m tests.structure"


@pytest.mark.parametrize(
    ("walk", "files", "jumps"), [("an iteration", 10, 8), ("a save", 59, 300), ("a resume", 115, 2100)]
)
def test_no_walk_through_the_code_gets_longer(tmp_path: Path, walk: str, files: int, jumps: int) -> None:
    found = walks(tmp_path)[walk]
    assert (found.files <= files, found.jumps <= jumps) == (True, True), found

"""Give every test that uses accelerate a fresh one, because accelerate keeps its state for the whole process."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _fresh_accelerate() -> Iterator[None]:
    _forget()
    yield
    _forget()


def _forget() -> None:
    if "accelerate.state" in sys.modules:  # it is slow to import, and most dialects do not need it
        from accelerate.state import AcceleratorState, GradientState  # type: ignore[import-untyped]

        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()

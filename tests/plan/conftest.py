"""A clock for the tests of costs."""

from __future__ import annotations

import time

import pytest

from tests.clock import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return a clock that only the run advances."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock

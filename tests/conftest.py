"""What holds for all tests."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def _what_is_there_is_no_garbage() -> None:
    """What was imported so far is left out when a test, or a hook, collects garbage: it would take longest."""
    gc.freeze()

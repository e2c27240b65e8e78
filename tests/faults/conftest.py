"""End the child processes of a test when the test ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.children import close_all


@pytest.fixture(autouse=True)
def _end_children() -> Iterator[None]:
    yield
    close_all()

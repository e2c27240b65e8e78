from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from hookline.common.collector import paused


@pytest.fixture(autouse=True)
def _nothing_is_frozen() -> Iterator[None]:
    """Undo that the tests have frozen what they import."""
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    yield
    if frozen:
        gc.freeze()


class Cycle:
    """An object that only the collector can free."""

    def __init__(self) -> None:
        self.itself = self


def test_nothing_is_collected_inside_and_all_of_it_can_be_afterwards() -> None:
    with paused():
        assert not gc.isenabled()
        inside = weakref.ref(Cycle())
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    gc.collect(1)
    assert inside() is not None  # it counts as old
    gc.collect()
    assert inside() is None


def test_a_collector_that_is_off_stays_off_and_an_error_turns_it_on_again() -> None:
    with pytest.raises(ZeroDivisionError), paused():
        raise ZeroDivisionError
    assert gc.isenabled()
    gc.disable()
    try:
        with paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_objects_that_the_user_has_frozen_stay_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with paused():
            pass
        assert gc.get_freeze_count() >= frozen > 0
    finally:
        gc.unfreeze()

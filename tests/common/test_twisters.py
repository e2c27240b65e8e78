from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from hookline.common import rng
from hookline.common.rng import TWISTERS, NumpyTwister, PythonTwister, Twister, preserved

#: A generator, and its functions: draw a number, draw a normal number of a pair, and read the whole state.
CASES: dict[str, tuple[type[Twister], Callable[[], float], Callable[[], float], Callable[[], Any]]] = {
    "python": (PythonTwister, random.random, lambda: random.gauss(0, 1), random.getstate),
    "numpy": (NumpyTwister, np.random.rand, np.random.randn, lambda: repr(np.random.get_state(legacy=False))),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Iterator[Any]:
    in_python, in_numpy = random.getstate(), np.random.get_state()
    twister, *functions = CASES[request.param]
    yield twister(), *functions
    random.setstate(in_python), np.random.set_state(in_numpy)


def test_the_words_are_found_in_memory() -> None:
    for twister in TWISTERS:
        twister.state()
        assert twister._copy is not None


def test_every_draw_shows_and_the_state_comes_back(case: Any) -> None:
    twister, draw, draw_normal, official = case
    for number in (draw, draw_normal):
        twister.seed(5)
        before, state = official(), twister.state()
        assert not twister.differs(state)
        expected = [number() for _ in range(700)]
        assert twister.differs(state)
        twister.restore(state)
        assert official() == before
        assert [number() for _ in range(700)] == expected


def test_a_draw_of_a_normal_number_that_was_left_over_shows_too(case: Any) -> None:
    twister, _, draw_normal, official = case
    twister.seed(5)
    draw_normal()
    before, state = official(), twister.state()
    left_over = draw_normal()
    assert twister.differs(state)
    twister.restore(state)
    assert official() == before
    assert draw_normal() == left_over
    even = twister.state()
    assert not twister.differs(even)


def draw_inside() -> None:
    with preserved():
        np.random.randn()
        with preserved():
            pass


def draw_and_resume() -> None:
    saved = rng.state()
    np.random.randn()
    with preserved():
        pass
    rng.restore(saved)


@pytest.mark.parametrize("draw", [draw_inside, draw_and_resume])
def test_a_normal_number_that_is_left_over_again_stays(draw: Callable[[], None]) -> None:
    """The words of a state do not tell whether a number is left over: it may have been restored meanwhile."""
    before = np.random.get_state()
    np.random.seed(3)
    _, left_over = np.random.randn(2)
    np.random.seed(3)
    np.random.randn()
    draw()
    with preserved():
        np.random.randn(2)
    assert np.random.randn() == left_over
    np.random.set_state(before)


def test_a_replaced_seed_function_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "seed", lambda *_: None)
    assert PythonTwister()._copy is not None


@pytest.mark.parametrize("name", ["pypy", "graalpy"])
def test_another_python_has_no_words_in_memory(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(rng, "_copier", None)
    monkeypatch.setattr(sys.implementation, "name", name)
    before, twister = random.getstate(), PythonTwister()
    assert twister._copy is None
    state, drawn = twister.state(), random.random()
    twister.restore(state)
    assert random.random() == drawn
    random.setstate(before)


def test_words_that_are_not_the_official_ones_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if another version of Python or numpy kept them elsewhere."""
    monkeypatch.setattr(rng, "_copier", lambda address, size: lambda: bytes(size))
    in_numpy = NumpyTwister()
    in_numpy.state()
    assert PythonTwister()._copy is None
    assert in_numpy._copy is None


def test_a_draw_of_a_whole_period_of_words_shows(case: Any) -> None:
    twister, draw, _, _ = case
    twister.seed(5)
    draw()
    state = twister.state()
    for _ in range(312):  # a number is two words of 624
        draw()
    assert twister.differs(state)


def test_without_the_words_the_official_state_is_used_and_counts_as_changed(case: Any) -> None:
    twister, draw, _, official = case
    twister.seed(5)
    twister.state()
    twister._copy = None
    before, state = official(), twister.state()
    assert twister.differs(state)
    assert twister.differs(twister.just_seeded())
    expected = draw()
    twister.restore(state)
    assert official() == before
    assert draw() == expected


def test_another_bit_generator_of_numpy_is_noticed() -> None:
    numpy_random: Any = np.random  # its stub hides some functions
    before = numpy_random.get_bit_generator()
    kept = np.random.get_state()
    try:
        twister = NumpyTwister()
        twister.state()
        numpy_random.set_bit_generator(np.random.PCG64(1))
        state = twister.state()
        first = np.random.rand()
        assert twister.differs(state)
        twister.restore(state)
        assert np.random.rand() == first
        numpy_random.set_bit_generator(np.random.MT19937(1))
        state = twister.state()
        assert not twister.differs(state)
        first = np.random.rand()
        twister.restore(state)
        assert np.random.rand() == first
    finally:
        numpy_random.set_bit_generator(before)
        np.random.set_state(kept)

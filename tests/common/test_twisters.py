from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from hookline.common.rng import TWISTERS, NumpyTwister, PythonTwister, Twister

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

"""The random number generators of Python and numpy, with states that are cheap to copy and to compare.

Their own functions return a state in 13 and 44 microseconds, too long to find out after a sample or a hook whether it
has drawn a number. Both are Mersenne twisters, whose words can be copied from memory in 0.2 microseconds. The first
copy is compared with the official state. If they differ, or a normal number is left over from a pair, which is
elsewhere, the official state is used.
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

WORDS = 624


class State(NamedTuple):
    """The state of a generator: its words, or, if they are not all of it, what its library returns."""

    words: bytes
    official: Any = None


class Twister(ABC):
    """The generator of a library."""

    #: Returns the words and the position in them; None if they cannot be copied.
    _copy: Callable[[], bytes] | None = None

    @abstractmethod
    def state(self) -> State:
        """Return the state."""

    def just_seeded(self) -> State:
        """Return the state after `seed`, for `differs` alone. It has no normal number left over."""
        return State(b"" if self._copy is None else self._copy())

    def differs(self, state: State) -> bool:
        """Return whether a number may have been drawn since a state."""
        return state.official is not None or self._copy is None or self._copy() != state.words

    def restore(self, state: State) -> None:
        """Restore a state, if it has changed."""
        if self.differs(state):
            self._set(state)

    @abstractmethod
    def _set(self, state: State) -> None: ...

    @abstractmethod
    def seed(self, seed: int) -> None:
        """Start with the numbers of a seed."""


class PythonTwister(Twister):
    """The generator of the module `random`."""

    _form = struct.Struct(f"=i{WORDS}I")  # the position and the words

    def __init__(self) -> None:
        self._generator: Any = random.seed.__self__  # type: ignore[attr-defined]  # it is a bound method
        in_c: Any = random.Random.__base__
        self._seed = partial(in_c.seed, self._generator)  # without the checks of types
        fits = in_c.__basicsize__ >= object.__basicsize__ + self._form.size
        if sys.implementation.name == "cpython" and fits:
            copy = _copier(id(self._generator) + object.__basicsize__, self._form.size)
            self._copy = copy if self._unpacked(copy()) == random.getstate()[1] else None

    def state(self) -> State:  # noqa: D102  # as in the base class
        if self._copy is None or self._generator.gauss_next is not None:
            return State(b"", random.getstate())
        return State(self._copy())

    def _set(self, state: State) -> None:
        random.setstate(state.official or (random.Random.VERSION, self._unpacked(state.words), None))

    def _unpacked(self, words: bytes) -> tuple[int, ...]:
        position, *numbers = self._form.unpack(words)
        return (*numbers, position)

    def seed(self, seed: int) -> None:  # noqa: D102  # as in the base class
        self._seed(seed)
        self._generator.gauss_next = None


class NumpyTwister(Twister):
    """The generator of numpy's functions, such as `numpy.random.rand`."""

    _form = struct.Struct(f"={4 * WORDS}si")  # the words and the position

    def __init__(self) -> None:
        self._source: Any = None
        #: The newest words of a state without a normal number that is left over.
        self._complete = b""

    def state(self) -> State:  # noqa: D102  # as in the base class
        source = np.random.get_bit_generator()  # type: ignore[attr-defined]  # its stub hides it
        if source is not self._source:
            self._find_words(source)
        if self._copy is not None:
            words = self._copy()
            if words == self._complete:
                return State(words)
            official = np.random.get_state(legacy=False)
            if not official["has_gauss"]:
                self._complete = words
                return State(words)
        return State(b"", np.random.get_state(legacy=False))

    def _find_words(self, source: Any) -> None:
        self._source, self._copy, self._complete = source, None, b""
        official = np.random.get_state(legacy=False)
        if official["bit_generator"] == "MT19937":
            copy = _copier(source.ctypes.state_address, self._form.size)
            inside = official["state"]
            self._copy = copy if copy() == self._form.pack(inside["key"].tobytes(), inside["pos"]) else None

    def _set(self, state: State) -> None:
        if state.official is not None:
            np.random.set_state(state.official)
        else:
            key, position = self._form.unpack(state.words)
            np.random.set_state(("MT19937", np.frombuffer(key, np.uint32), position, 0, 0.0))

    def seed(self, seed: int) -> None:  # noqa: D102  # as in the base class
        np.random.seed(seed % 2**32)


def _copier(address: int, size: int) -> Callable[[], bytes]:
    return lambda: ctypes.string_at(address, size)


#: The generators beside torch's.
python, numpy = PythonTwister(), NumpyTwister()

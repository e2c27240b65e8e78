"""The random number generators of the process: seed them, and save and restore their states.

The functions of Python and numpy return a state in 13 and 44 microseconds, too long to find out after a sample or a
hook whether it has drawn a number. Both are Mersenne twisters, whose words can be copied from memory in 0.2
microseconds. The first copy is compared with the official state. If they differ, or a normal number is left over from a
pair, which is elsewhere, the official state is used.
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed the generators of torch (on every device), numpy and Python."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def state() -> dict[str, Any]:
    """Return the states of all generators as tensors and plain data, which a checkpoint can store."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, internal, gauss_next = random.getstate()
    numpy_keys = torch.from_numpy(np.asarray(keys).astype(np.int64))
    states: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": [str(kind), numpy_keys, int(position), int(has_gauss), float(gauss)],
        "python": [version, torch.tensor(internal, dtype=torch.int64), gauss_next],
    }
    for name, module in _devices().items():
        states[name] = module.get_rng_state_all()
    if torch.backends.mps.is_available():
        states["mps"] = torch.mps.get_rng_state()
    return states


def restore(states: Mapping[str, Any]) -> None:
    """Restore the states of all generators. Skip the states of devices that are not available now."""
    torch.set_rng_state(states["torch"])
    kind, keys, position, has_gauss, gauss = states["numpy"]
    NUMPY.set((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))
    version, internal, gauss_next = states["python"]
    random.setstate((version, tuple(internal.tolist()), gauss_next))
    for name, module in _devices().items():
        for device, one in enumerate(states.get(name, ())[: module.device_count()]):
            module.set_rng_state(one, device)
    if "mps" in states and torch.backends.mps.is_available():
        torch.mps.set_rng_state(states["mps"])


def malformed(states: Mapping[str, Any]) -> list[str]:
    """Return the names of the torch, numpy and Python states that do not look like those from `state`."""
    expected = state()
    return [name for name in ("torch", "numpy", "python") if _kinds(states.get(name)) != _kinds(expected[name])]


def _kinds(value: Any) -> Any:
    """Return the structure of a state: the types of its values, and the dtypes and shapes of its tensors.

    None counts as a float: it is the place of a leftover Gaussian number, which may or may not be there.
    """
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape
    if isinstance(value, list):
        return [_kinds(entry) for entry in value]
    return float if value is None else type(value)


def _devices() -> dict[str, ModuleType]:
    modules = {name: getattr(torch, name) for name in ("cuda", "xpu") if hasattr(torch, name)}
    return {name: module for name, module in modules.items() if module.is_available()}


@contextmanager
def preserved() -> Iterator[None]:
    """Restore the generators after the `with` block, whatever was drawn inside it."""
    on_cpu, states = torch.get_rng_state(), [twister.state() for twister in TWISTERS]
    on_devices = [(module, module.get_rng_state_all()) for module in _devices().values()]
    try:
        yield
    finally:
        torch.set_rng_state(on_cpu)
        for twister, state in zip(TWISTERS, states, strict=True):
            twister.restore(state)
        for module, saved in on_devices:
            module.set_rng_state_all(saved)


def mix(*parts: int) -> int:
    """Return a 63-bit seed from several numbers.

    It is the same on every machine, and similar numbers lead to unrelated seeds.
    """
    text = ",".join(str(part) for part in parts).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 1


# -- cheap states

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
        # The functions of the module are methods of one generator. `seed` itself is often replaced.
        self._generator: Any = random.getstate.__self__  # type: ignore[attr-defined]  # it is a bound method
        in_c: Any = random.Random.__base__
        self._seed = partial(in_c.seed, self._generator)  # without the checks of types
        if sys.implementation.name != "cpython":  # another one has no such memory
            return
        if in_c.__basicsize__ >= object.__basicsize__ + self._form.size:
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
            self.set(state.official)
        else:
            key, position = self._form.unpack(state.words)
            self.set(("MT19937", np.frombuffer(key, np.uint32), position, 0, 0.0))

    def set(self, official: Any) -> None:
        """Set a state of numpy. The same words may now have a normal number left over."""
        np.random.set_state(official)
        self._complete = b""

    def seed(self, seed: int) -> None:  # noqa: D102  # as in the base class
        np.random.seed(seed % 2**32)


def _copier(address: int, size: int) -> Callable[[], bytes]:
    return lambda: ctypes.string_at(address, size)


NUMPY = NumpyTwister()
#: The generators beside torch's.
TWISTERS = (PythonTwister(), NUMPY)

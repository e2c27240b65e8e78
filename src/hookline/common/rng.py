"""The random number generators of the process: seed them, and save and restore their states."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import torch

from hookline.common import generators


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
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))
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
    twisters = (generators.python, generators.numpy)
    on_cpu, states = torch.get_rng_state(), [twister.state() for twister in twisters]
    on_devices = [(module, module.get_rng_state_all()) for module in _devices().values()]
    try:
        yield
    finally:
        torch.set_rng_state(on_cpu)
        for twister, state in zip(twisters, states, strict=True):
            twister.restore(state)
        for module, saved in on_devices:
            module.set_rng_state_all(saved)

"""Bits: short hashes of everything that a training step reads and leaves, by kind and by name.

Two runs are in the same state if these hashes are equal. A hash sees the order of elements, their type and their shape.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hookline.common import rng
from hookline.common.sharding import local_part
from hookline.common.watching import undisturbed

if TYPE_CHECKING:
    from hookline.runner.runner import Runner

#: The hashes of one kind, by name.
Bits = dict[str, str]
#: Containers inside each other beyond this are not looked into.
DEEPEST = 20


def bits_of(value: Any, name: str = "", objects: bool = True) -> Bits:
    """Return the hash of every tensor and every plain value in nested data, by its place.

    With `objects`, the attributes of other objects are looked at, too, such as a batch of the user's own class.
    """
    with torch.no_grad(), undisturbed(()):
        return dict(_leaves(value, name, objects, 0))


def _leaves(value: Any, name: str, objects: bool, depth: int) -> Iterator[tuple[str, str]]:
    inside = _entries(value, objects) if depth < DEEPEST else None
    if inside is None:
        yield name, _hash(value)
        return
    for key, entry in inside:
        yield from _leaves(entry, f"{name}/{key}" if name else str(key), objects, depth + 1)


def _entries(value: Any, objects: bool) -> Iterable[tuple[Any, Any]] | None:
    """Return the entries of a container; None for anything else."""
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, (list, tuple, deque)):
        return enumerate(value)
    if isinstance(value, (set, frozenset)):
        return enumerate(sorted(value, key=repr))
    if not objects or isinstance(value, (type, torch.Tensor, np.ndarray)) or type(value).__module__ == "builtins":
        return None
    held = getattr(value, "__dict__", None)
    return list(held.items()) if isinstance(held, dict) and held else None


def _hash(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return _hash_of_tensor(value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return _digest(f"{value.dtype} {value.shape}", np.ascontiguousarray(value).tobytes())
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.generic)):
        return _digest(type(value).__name__, repr(value).encode())
    return type(value).__qualname__  # its content is unknown


def _hash_of_tensor(tensor: torch.Tensor) -> str:
    part = local_part(tensor.detach())
    kind = f"{part.dtype} {tuple(part.shape)} {part.layout}"
    if part.layout != torch.strided or part.is_quantized or part.is_meta:
        return _digest(kind, repr(part).encode() if not part.is_meta else b"")
    whole = part.resolve_conj().resolve_neg().cpu().contiguous()
    return _digest(kind, ctypes.string_at(whole.data_ptr(), whole.nbytes) if whole.nbytes else b"")


def _digest(kind: str, content: bytes) -> str:
    return blake2b(kind.encode() + b"\0" + content, digest_size=8).hexdigest()


def bits_of_generators() -> Bits:
    """Return the hashes of the random generators, by library or device."""
    states = rng.state()
    return {name: _digest(name, repr(sorted(bits_of(value).items())).encode()) for name, value in states.items()}


def bits_of_run(runner: Runner) -> dict[str, Bits]:
    """Return the hashes of the state that a training step changes, by kind."""
    model = runner.model
    parameters = dict(model.named_parameters())
    names: dict[Any, str] = {parameter: name for name, parameter in parameters.items()}
    modes = {name: f"{module.training:d}" for name, module in model.named_modules()}
    modes |= {f"{name} (requires_grad)": f"{each.requires_grad:d}" for name, each in parameters.items()}
    optimizer: Bits = {}
    rates: Bits = {}
    for label, optim in runner.optims.items():
        prefix = f"{label}/" * (len(runner.optims) > 1)
        for number, group in enumerate(optim.optimizer.param_groups):
            for key, value in group.items():
                found = bits_of([names.get(each, "?") for each in value] if key == "params" else value)
                (rates if key == "lr" else optimizer).update({f"{prefix}group {number} {key}": "".join(found.values())})
        for parameter, state in optim.optimizer.state.items():
            of = names.get(parameter, "?") if isinstance(parameter, torch.Tensor) else str(parameter)
            optimizer |= bits_of(state, f"{prefix}{of}")
        for number, scheduled in enumerate(optim.schedulers):
            optimizer |= bits_of(_plain(scheduled.scheduler.state_dict()), f"{prefix}scheduler {number}")
    return {
        "parameter": {name: _hash(each) for name, each in parameters.items()},
        "buffer": {name: _hash(each) for name, each in model.named_buffers()},
        "mode": modes,
        "learning rate": rates,
        "optimizer": optimizer,
    }


def bits_of_gradients(runner: Runner) -> Bits:
    """Return the hashes of the gradients that there are."""
    return {name: _hash(each.grad) for name, each in runner.model.named_parameters() if each.grad is not None}


def bits_of_hooks(runner: Runner) -> Bits:
    """Return the hash of the state of every hook that acts on the training."""
    found: Bits = {}
    for entry in runner._host.plan:
        if entry.role == "actor" and hasattr(entry.hook, "state_dict"):
            found |= bits_of(entry.hook.state_dict(), entry.name)
    return found


def bits_of_settings() -> Bits:
    """Return the settings of torch that a hook could change for everybody."""
    return {
        "torch.get_default_dtype()": str(torch.get_default_dtype()),
        "torch.get_num_threads()": str(torch.get_num_threads()),
        "torch.is_grad_enabled()": str(torch.is_grad_enabled()),
        "torch.are_deterministic_algorithms_enabled()": str(torch.are_deterministic_algorithms_enabled()),
        "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision(),
    }


def _plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a scheduler without functions, whose text differs between processes."""
    return {name: value for name, value in state.items() if not callable(value)}

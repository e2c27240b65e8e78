"""What a checkpoint holds, and how a run takes it back.

    meta              versions, seed, counters, when; for people and for `hookline inspect`
    state_dict        the model
    optimizer         of the optim, or by name where there are several
    param_schedulers  likewise
    scaler            likewise, with fp16
    message_hub       histories and facts
    hooks             every hook's state under its name
    rng               torch (every device), numpy and Python
    position          the counters of the loop
    writers           how far each writer's records went

Tensors and plain data only: it is read with `weights_only=True`, and no string in it ever selects code.
"""

from __future__ import annotations

import platform
import random
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

import hookline
from hookline.errors import HookError, StorageError

if TYPE_CHECKING:
    from torch import nn

    from hookline.optim import Optim
    from hookline.runner import Runner


def take(runner: Runner, *, optimizer: bool = True, schedulers: bool = True) -> dict[str, Any]:
    """Everything that the run is made of; hooks may change entries at `before_save_checkpoint`."""
    checkpoint: dict[str, Any] = {
        "meta": meta(runner),
        "state_dict": runner.model.state_dict(),
        "message_hub": runner.hub.state_dict(),
        "hooks": hook_states(runner),
        "rng": rng_state(),
        "position": runner.position.state_dict() | {"updates": _by_name(runner, lambda optim: optim.updates)},
        "writers": runner.writers.state_dict(),
    }
    if optimizer:
        checkpoint["optimizer"] = _by_name(runner, lambda optim: optim.optimizer.state_dict())
        checkpoint["scaler"] = _by_name(runner, lambda optim: optim.scaler.state_dict() if optim.scaler else None)
    if schedulers:
        checkpoint["param_schedulers"] = _by_name(
            runner, lambda optim: [scheduled.scheduler.state_dict() for scheduled in optim.schedulers]
        )
    runner.plan.before_save_checkpoint(checkpoint)
    return checkpoint


def meta(runner: Runner) -> dict[str, Any]:
    """Facts about the run for people; nothing in it is needed to go on."""
    at = runner.position
    return {
        "hookline": hookline.__version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "experiment_name": runner.experiment_name,
        "seed": runner.seed,
        "epoch": at.epoch,
        "iter": at.iter,
        "world_size": runner.world_size,
        "threads": torch.get_num_threads(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "hooks": [entry.name for entry in runner.plan],
    }


def hook_states(runner: Runner) -> dict[str, Any]:
    """The states of all hooks that have one."""
    states = {}
    for entry in runner.plan:
        state = entry.hook.state_dict() if hasattr(entry.hook, "state_dict") else None
        if state:
            refuse_odd(state, f"the state of {entry.name}")
            states[entry.name] = state
    return states


def refuse_odd(value: Any, where: str) -> None:
    """Refuse what cannot be read back with `weights_only=True`, by name, before anything is written."""
    if isinstance(value, (Tensor, str, bytes, int, float, bool, type(None))) and type(value).__module__ != "numpy":
        return
    if type(value) in (dict, OrderedDict):
        for key, inner in value.items():
            refuse_odd(inner, f"{where}[{key!r}]")
    elif type(value) in (list, tuple):
        for index, inner in enumerate(value):
            refuse_odd(inner, f"{where}[{index}]")
    else:
        raise HookError(
            f"{where} is a {type(value).__module__}.{type(value).__qualname__}, which a checkpoint cannot hold; "
            "give tensors and plain data (numbers, strings, lists, dicts)"
        )


def _by_name(runner: Runner, state_of: Any) -> Any:
    if isinstance(runner.optim, Mapping):
        return {name: state_of(optim) for name, optim in runner.optim.items()}
    return state_of(runner.optim) if runner.optim is not None else None


def check(checkpoint: Mapping[str, Any], path: str) -> None:
    """Refuse a file that a run cannot go on from."""
    missing = [key for key in ("state_dict", "position", "hooks", "message_hub", "rng") if key not in checkpoint]
    if missing:
        raise StorageError(
            f"{path} has no {', '.join(missing)}, so a run cannot go on from it; "
            "use load_from to start from its weights"
        )


def misfits(model: nn.Module, state: Mapping[str, Any]) -> list[str]:
    """What of a model's state is missing, surplus or of another shape."""
    own = model.state_dict()
    found = [f"missing: {name} {tuple(own[name].shape)}" for name in own if name not in state]
    found += [f"surplus: {name}" for name in state if name not in own]
    for name in own:
        if name in state and _shape(state[name]) != _shape(own[name]):
            found.append(f"{name}: the model has {_shape(own[name])}, the checkpoint {_shape(state[name])}")
    return found


def _shape(value: Any) -> Any:
    return tuple(value.shape) if hasattr(value, "shape") else type(value).__name__


def load_weights(model: nn.Module, state: Mapping[str, Any], path: str) -> None:
    """Load a model's state; nothing is loaded when anything does not fit."""
    problems = misfits(model, state)
    if problems:
        raise StorageError(f"{path} does not fit the model; nothing was loaded:\n  " + "\n  ".join(problems))
    model.load_state_dict(state)


def load_fitting(model: nn.Module, state: Mapping[str, Any], path: str) -> list[str]:
    """Load what fits of a model's state, and give what did not; refuse when nothing fits."""
    own = model.state_dict()
    fitting = {name: value for name, value in state.items() if name in own and _shape(own[name]) == _shape(value)}
    if own and not fitting:
        raise StorageError(f"nothing in {path} fits the model:\n  " + "\n  ".join(misfits(model, state)))
    model.load_state_dict(fitting, strict=False)
    return misfits(model, state)


def load_optims(runner: Runner, checkpoint: Mapping[str, Any], path: str) -> None:
    """Give optimizers, schedulers and scalers their states back."""
    optims: Mapping[str, Optim] = runner.optim if isinstance(runner.optim, Mapping) else {"": runner.sole_optim}
    parts = {key: checkpoint.get(key) for key in ("optimizer", "param_schedulers", "scaler")}
    parts["updates"] = checkpoint["position"].get("updates")
    for name, optim in optims.items():
        states = {key: _part(value, name, key, path) for key, value in parts.items()}
        optim.updates = states["updates"] or 0
        if states["optimizer"] is None:
            raise StorageError(
                f"{path} was saved without its optimizer, so a run cannot go on from it; "
                "use load_from to start from its weights"
            )
        optim.optimizer.load_state_dict(states["optimizer"])
        saved = states["param_schedulers"] or []
        if len(saved) != len(optim.schedulers):
            raise StorageError(f"{path} has {len(saved)} schedulers, and this run {len(optim.schedulers)}")
        for scheduled, state in zip(optim.schedulers, saved, strict=True):
            scheduled.scheduler.load_state_dict(state)
        if optim.scaler is not None and states["scaler"] is not None:
            optim.scaler.load_state_dict(states["scaler"])


def _part(value: Any, name: str, key: str, path: str) -> Any:
    if not name or value is None:
        return value
    if name not in value:
        raise StorageError(f"{path} has no {key} for the optim '{name}'; it has: {', '.join(value)}")
    return value[name]


def rng_state() -> dict[str, Any]:
    """The states of all generators as tensors and plain data."""
    kind, keys, at, has_gauss, gauss = np.random.get_state(legacy=True)
    version, internal, gauss_next = random.getstate()
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": [
            str(kind),
            torch.from_numpy(np.asarray(keys).astype(np.int64)),
            int(at),
            int(has_gauss),
            float(gauss),
        ],
        "python": [version, torch.tensor(internal, dtype=torch.int64), gauss_next],
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_rng(state: Mapping[str, Any]) -> None:
    """Put all generators where they were."""
    torch.set_rng_state(state["torch"])
    kind, keys, at, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), at, has_gauss, gauss))
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal.tolist()), gauss_next))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])

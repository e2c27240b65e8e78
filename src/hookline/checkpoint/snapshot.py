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

import logging
import platform
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

import hookline
from hookline import rng
from hookline.checkpoint.plain import refuse_odd, without_numpy
from hookline.errors import StorageError, blame
from hookline.position import Position

if TYPE_CHECKING:
    from torch import nn

    from hookline.optim import Optim
    from hookline.runner import Runner


log = logging.getLogger("hookline")

#: Counts up when a checkpoint of today could no longer be read by the code of yesterday.
FORMAT = 1


def take(runner: Runner, optimizer: bool = True, schedulers: bool = True) -> dict[str, Any]:
    """Everything that the run is made of; hooks may change entries at `before_save_checkpoint`."""
    checkpoint: dict[str, Any] = {
        "meta": meta(runner),
        "state_dict": runner.model.state_dict(),
        "message_hub": runner.hub.state_dict(),
        "hooks": hook_states(runner),
        "rng": rng.state(),
        "position": position(runner),
        "writers": runner.writers.state_dict(),
    }
    if optimizer:
        checkpoint["optimizer"] = _by_name(runner, lambda optim: without_numpy(optim.optimizer.state_dict()))
        checkpoint["scaler"] = _by_name(runner, lambda optim: optim.scaler.state_dict() if optim.scaler else None)
    if schedulers:
        checkpoint["param_schedulers"] = _by_name(
            runner, lambda optim: [without_numpy(each.scheduler.state_dict()) for each in optim.schedulers]
        )
    runner.plan.before_save_checkpoint(checkpoint)
    for key, part in checkpoint.items():
        refuse_odd(part, f"checkpoint[{key!r}]")
    return checkpoint


def position(runner: Runner) -> dict[str, Any]:
    """Where the run stands, to the batch and the micro-batch."""
    state = runner.position.state_dict() | {"updates": _by_name(runner, lambda optim: optim.updates)}
    if any(optim.micro for optim in runner.optims):  # see `Runner.in_window` and `Runner.end_if_signalled`
        state["windows"] = _by_name(runner, lambda optim: optim.open_window())
    if runner.batches is not None and (loader := runner.batches.loader_state()) is not None:
        state["loader"] = loader
    return state


def meta(runner: Runner) -> dict[str, Any]:
    """Facts about the run for people; nothing in it is needed to go on."""
    at = runner.position
    return {
        "hookline": hookline.__version__,
        "format": FORMAT,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "experiment_name": runner.experiment_name,
        "seed": runner.seed,
        "epoch": at.epoch,
        "iter": at.iter,
        "world_size": runner.world_size,
        "threads": torch.get_num_threads(),
        "device": runner.device.type,
        "precision": runner.precision,
        "accumulate": [optim.accumulate for optim in runner.optims],
        "batches": runner.train_loop.length if runner.has_training else None,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "hooks": [entry.name for entry in runner.plan],
        "optims": {name: kinds_of(optim) for name, optim in _named(runner)} if runner.optims else {},
    }


def kinds_of(optim: Optim) -> list[str]:
    """The classes of an optimizer and its schedulers, to compare."""
    return [type(optim.optimizer).__name__, *(type(each.scheduler).__name__ for each in optim.schedulers)]


def hook_states(runner: Runner) -> dict[str, Any]:
    """The states of all hooks that have one."""
    states = {}
    for entry in runner.plan:
        try:
            state = entry.hook.state_dict() if hasattr(entry.hook, "state_dict") else None
        except Exception as error:
            blame(error, f"in hook {entry.name}, when its state was saved")
            raise
        if state:
            refuse_odd(state, f"the state of {entry.name}")
            states[entry.name] = state
    return states


def _by_name(runner: Runner, state_of: Any) -> Any:
    if isinstance(runner.optim, Mapping):
        return {name: state_of(optim) for name, optim in runner.optim.items()}
    return state_of(runner.optim) if runner.optim is not None else None


#: What a run cannot go on without.
NEEDED = ("meta", "state_dict", "optimizer", "param_schedulers", "position", "hooks", "message_hub", "rng")


def load(runner: Runner, checkpoint: Mapping[str, Any], path: str) -> None:
    """Give model, optimizers, schedulers and scalers their states; nothing is loaded when anything does not fit."""
    missing = [key for key in NEEDED if key not in checkpoint]
    if missing:
        raise StorageError(
            f"{path} has no {', '.join(missing)}, so a run cannot go on from it; "
            "use load_from to start from its weights"
        )
    saved_by = checkpoint["meta"].get("format", 1)
    if saved_by > FORMAT:
        raise StorageError(f"{path} has the format {saved_by}, and this hookline reads up to {FORMAT}; use a newer one")
    refuse_malformed(checkpoint, path)
    problems = misfits(runner.model, checkpoint["state_dict"])
    problems += data_misfits(runner, checkpoint["position"])
    problems += [problem for name, optim in _named(runner) for problem in _optim_misfits(name, optim, checkpoint)]
    if problems:
        raise StorageError(f"{path} does not fit this run; nothing was loaded:\n  " + "\n  ".join(problems))
    runner.model.load_state_dict(checkpoint["state_dict"])
    for name, optim in _named(runner):
        own = initial_rates(optim.optimizer.param_groups)
        if own != (theirs := initial_rates(_part(checkpoint["optimizer"], name)["param_groups"])):
            log.warning("the learning rate goes on from the checkpoint's, %s; this run's %s is not used", theirs, own)
        optim.updates = _part(checkpoint["position"].get("updates"), name) or 0
        optim.optimizer.load_state_dict(_part(checkpoint["optimizer"], name))
        for scheduled, state in zip(optim.schedulers, _part(checkpoint["param_schedulers"], name), strict=True):
            scheduled.scheduler.load_state_dict(state)
        if optim.scaler is not None:
            optim.scaler.load_state_dict(_part(checkpoint["scaler"], name))
        if window := _part(checkpoint["position"].get("windows"), name):
            optim.reopen_window(window)


def refuse_malformed(checkpoint: Mapping[str, Any], path: str) -> None:
    """Refuse parts of another kind than those that `take` gives; a hook may have changed them."""
    odd = [
        key
        for key in ("meta", "state_dict", "position", "hooks", "message_hub", "rng")
        if not _is_dict(checkpoint[key])
    ]
    if not odd:
        known = Position().state_dict()
        odd += [
            f"position['{name}']"
            for name, value in checkpoint["position"].items()
            if name in known and type(value) is not type(known[name])
        ]
        odd += [f"hooks['{name}']" for name, state in checkpoint["hooks"].items() if not _is_dict(state)]
        odd += [
            f"message_hub['{name}']"
            for name in ("scalars", "info")
            if not _is_dict(checkpoint["message_hub"].get(name))
        ]
        odd += [
            f"message_hub['scalars']['{name}']"
            for name, saved in checkpoint["message_hub"].get("scalars", {}).items()
            if not _is_dict(saved) or not isinstance(saved.get("values"), Tensor)
        ]
        odd += [f"rng['{name}']" for name in rng.malformed(checkpoint["rng"])]
    if odd:
        raise StorageError(f"{path} cannot be used: {', '.join(odd)} is not what a run saves there")


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _named(runner: Runner) -> list[tuple[str, Optim]]:
    return list(runner.optim.items()) if isinstance(runner.optim, Mapping) else [("", runner.sole_optim)]


def _part(value: Any, name: str) -> Any:
    """The part of one optim; a run with just one has no names."""
    return value.get(name) if name and isinstance(value, Mapping) else value


def _optim_misfits(name: str, optim: Optim, checkpoint: Mapping[str, Any]) -> list[str]:
    """What of an optim's state is missing or has another shape."""
    who = f"optim '{name}'" if name else "the optimizer"
    saved = _part(checkpoint["optimizer"], name)
    if not isinstance(saved, Mapping) or "param_groups" not in saved:
        return [f"{who}: the checkpoint has no state for it"]
    then, now = checkpoint["meta"].get("optims", {}).get(name), kinds_of(optim)
    found = []
    if then != now:
        found.append(f"{who}: this run has {', '.join(now)}, the checkpoint {', '.join(map(str, then or ['none']))}")
    own, groups = optim.optimizer.param_groups, saved["param_groups"]
    sizes = [len(group["params"]) for group in own], [len(group["params"]) for group in groups]
    if sizes[0] != sizes[1]:
        return [*found, f"{who}: this run has groups of {sizes[0]} parameters, the checkpoint of {sizes[1]}"]
    parameters = dict(zip((i for group in groups for i in group["params"]), optim.parameters(), strict=True))
    for index, state in saved["state"].items():
        if index not in parameters:
            found.append(f"{who}: the checkpoint has a state of a parameter {index}, which is in no group")
            continue
        for key, value in state.items():
            shape = parameters[index].shape
            if isinstance(value, Tensor) and value.ndim and value.ndim == len(shape) and value.shape != shape:
                found.append(f"{who}: {key} of parameter {index} is {tuple(value.shape)}, and that is {tuple(shape)}")
    scaler = _part(checkpoint.get("scaler"), name)
    if (optim.scaler is None) != (scaler is None):
        here, there = ("no", "a") if optim.scaler is None else ("a", "no")
        found.append(f"{who}: this run has {here} gradient scaler, the checkpoint {there}; the precision has changed")
    return found


def initial_rates(groups: list[dict[str, Any]]) -> list[float]:
    """The learning rates that groups began with."""
    return [float(group.get("initial_lr", group["lr"])) for group in groups]


def data_misfits(runner: Runner, at: Mapping[str, Any]) -> list[str]:
    """Whether the data has become shorter than where the run stands."""
    length, batch = runner.train_loop.length, at.get("batch", 0)
    if length is None or batch <= length:
        return []
    return [f"the data: the checkpoint stands at batch {batch} of its epoch, and the loader has only {length} now"]


def changed_surroundings(runner: Runner, saved: Mapping[str, Any]) -> list[str]:
    """What differs between the process that saved a checkpoint and this one, so that results may differ in bits."""
    now = meta(runner)
    names = {"torch": "torch {}", "numpy": "numpy {}", "threads": "{} threads", "world_size": "{} processes"}
    settings = {"precision": "the precision {}", "accumulate": "accumulate {}", "batches": "{} batches an epoch"}
    changed = [key for key in (*names, "device") if key in saved and saved[key] != now[key]]
    found = []
    if changed:
        then, here = (", ".join(names.get(key, "{}").format(each[key]) for key in changed) for each in (saved, now))
        found.append(f"saved with {then}, and this is {here}: results may differ in their last bits")
    for key, text in settings.items():
        if key in saved and saved[key] != now[key]:
            found.append(f"saved with {text.format(saved[key])}, and this run has {now[key]}: it goes on with that")
    if saved.get("seed") != runner.seed:
        found.append(
            f"saved with the seed {saved.get('seed')}, and this run has {runner.seed}: the data comes in another order "
            "from here on"
        )
    return found


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


def refuse_lacking(model: nn.Module, state: Mapping[str, Any], path: str) -> None:
    """Refuse weights that leave a part of the model as it was: what is measured then would be something else."""
    lacking = [problem for problem in misfits(model, state) if not problem.startswith("surplus")]
    if lacking:
        raise StorageError(f"{path} does not fit the model, so it cannot be measured:\n  " + "\n  ".join(lacking))


def load_fitting(model: nn.Module, state: Mapping[str, Any], path: str) -> list[str]:
    """Load what fits of a model's state, and give what did not; refuse when nothing fits."""
    own = model.state_dict()
    fitting = {name: value for name, value in state.items() if name in own and _shape(own[name]) == _shape(value)}
    if own and not fitting:
        raise StorageError(f"nothing in {path} fits the model:\n  " + "\n  ".join(misfits(model, state)))
    model.load_state_dict(fitting, strict=False)
    return misfits(model, state)

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

import hookline
from hookline.checkpoint.compatibility import (
    data_misfits,
    kinds_of,
    misfits,
    optim_misfits,
    part,
    refuse_malformed,
    shape_of,
)
from hookline.common import rng
from hookline.common.plain import refuse_odd, without_numpy
from hookline.engine import hook_states
from hookline.errors import StorageError

if TYPE_CHECKING:
    from torch import nn

    from hookline.engine.optim import Optim
    from hookline.engine.runner import Runner


log = logging.getLogger("hookline")

#: Counts up when a checkpoint of today could no longer be read by the code of yesterday.
FORMAT = 1


def take(runner: Runner, optimizer: bool = True, schedulers: bool = True) -> dict[str, Any]:
    """Everything that the run is made of; hooks may change entries at `before_save_checkpoint`."""
    checkpoint: dict[str, Any] = {
        "meta": meta(runner),
        "state_dict": runner.model.state_dict(),
        "message_hub": runner.hub.state_dict(),
        "hooks": hook_states.take(runner.plan),
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
    for key, value in checkpoint.items():
        refuse_odd(value, f"checkpoint[{key!r}]")
    return checkpoint


def position(runner: Runner) -> dict[str, Any]:
    """Where the run stands, to the batch and the micro-batch."""
    state = runner.position.state_dict() | {"updates": _by_name(runner, lambda optim: optim.updates)}
    if any(optim.micro for optim in runner.optims):  # see `Runner.in_window` and `Runner.end_if_signalled`
        state["windows"] = _by_name(runner, lambda optim: optim.open_window())
    if runner.batches is not None and (loader := runner.batches.loader_state()) is not None:
        state["loader"] = loader
    return state


def surroundings() -> dict[str, Any]:
    """The process that saves: versions, threads, the time."""
    return {
        "hookline": hookline.__version__,
        "format": FORMAT,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def meta(runner: Runner) -> dict[str, Any]:
    """Facts about the run for people; nothing in it is needed to go on."""
    at = runner.position
    return {
        **runner.more_facts(),
        **surroundings(),
        "experiment_name": runner.experiment_name,
        "seed": runner.seed,
        "epoch": at.epoch,
        "iter": at.iter,
        "world_size": runner.world_size,
        "device": runner.device.type,
        "precision": runner.precision,
        "accumulate": [optim.accumulate for optim in runner.optims],
        "batches": runner.train_loop.length if runner.has_training else None,
        "hooks": [entry.name for entry in runner.plan],
        "optims": {name: kinds_of(optim) for name, optim in _named(runner)} if runner.optims else {},
    }


def with_meta(checkpoint: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A checkpoint with more facts in its `meta`; those that every checkpoint has stay as they are."""
    return {**checkpoint, "meta": {**more, **checkpoint["meta"]}} if more else checkpoint


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
    refuse_malformed(checkpoint, path)
    saved_by = checkpoint["meta"].get("format", 1)
    if saved_by > FORMAT:
        raise StorageError(f"{path} has the format {saved_by}, and this hookline reads up to {FORMAT}; use a newer one")
    problems = misfits(runner.model, checkpoint["state_dict"])
    problems += data_misfits(runner, checkpoint["position"])
    problems += [problem for name, optim in _named(runner) for problem in optim_misfits(name, optim, checkpoint)]
    if problems:
        raise StorageError(f"{path} does not fit this run; nothing was loaded:\n  " + "\n  ".join(problems))
    runner.model.load_state_dict(checkpoint["state_dict"])
    for name, optim in _named(runner):
        own = initial_rates(optim.optimizer.param_groups)
        if own != (theirs := initial_rates(part(checkpoint["optimizer"], name)["param_groups"])):
            log.warning("the learning rate goes on from the checkpoint's, %s; this run's %s is not used", theirs, own)
        optim.updates = part(checkpoint["position"].get("updates"), name) or 0
        optim.optimizer.load_state_dict(part(checkpoint["optimizer"], name))
        for scheduled, state in zip(optim.schedulers, part(checkpoint["param_schedulers"], name), strict=True):
            scheduled.scheduler.load_state_dict(state)
        if optim.scaler is not None:
            optim.scaler.load_state_dict(part(checkpoint["scaler"], name))
        if window := part(checkpoint["position"].get("windows"), name):
            optim.reopen_window(window)


def _named(runner: Runner) -> list[tuple[str, Optim]]:
    return list(runner.optim.items()) if isinstance(runner.optim, Mapping) else [("", runner.sole_optim)]


def initial_rates(groups: list[dict[str, Any]]) -> list[float]:
    """The learning rates that groups began with."""
    return [float(group.get("initial_lr", group["lr"])) for group in groups]


def load_fitting(model: nn.Module, state: Mapping[str, Any], path: str) -> list[str]:
    """Load what fits of a model's state, and give what did not; refuse when nothing fits."""
    own = model.state_dict()
    fitting = {name: value for name, value in state.items() if name in own and shape_of(own[name]) == shape_of(value)}
    if own and not fitting:
        raise StorageError(f"nothing in {path} fits the model:\n  " + "\n  ".join(misfits(model, state)))
    model.load_state_dict(fitting, strict=False)
    return misfits(model, state)

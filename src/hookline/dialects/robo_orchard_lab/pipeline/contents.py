"""What is in a checkpoint, and what may be: tensors and plain data, of which nothing is ever run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from hookline.checkpoint import store
from hookline.common.plain import check_plain
from hookline.dialects.robo_orchard_core.utils.function_info import known_as
from hookline.dialects.robo_orchard_lab.pipeline import folders
from hookline.engine.numerics import check_weights_are_finite
from hookline.errors import StorageError, blame

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from accelerate import Accelerator  # type: ignore[import-untyped]

    from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import PipelineHooks

log = logging.getLogger(known_as(__name__))


class Named(NamedTuple):
    """A hook with a state, and the name under which that is saved."""

    name: str
    hook: Any


def stateful(hooks: PipelineHooks) -> Iterator[Named]:
    """The hooks with a state, by the name of their class, with a number from the second one of a class on."""
    seen: dict[str, int] = {}
    for hook in hooks.members():
        if hasattr(hook, "state_dict") and hasattr(hook, "load_state_dict"):
            kind = type(hook).__name__
            seen[kind] = seen.get(kind, 0) + 1
            yield Named(kind if seen[kind] == 1 else f"{kind}#{seen[kind]}", hook)


def rng_name(accelerator: Accelerator) -> str:
    """The file with the states of the random generators of this process."""
    return f"trainer_rng_{accelerator.process_index}.pth"


def kinds_of(accelerator: Accelerator) -> list[str]:
    """The classes of all optimizers and schedulers, to compare."""
    inner = [one.optimizer for one in accelerator._optimizers] + [one.scheduler for one in accelerator._schedulers]
    return [type(one).__name__ for one in inner]


def refuse_unreadable(accelerator: Accelerator) -> None:
    """Refuse to write what could not be read back without running what is in it."""
    for optimizer in accelerator._optimizers:
        check_plain(optimizer.state_dict()["param_groups"], f"a group of {type(optimizer.optimizer).__name__}")
    for scheduler in accelerator._schedulers:
        check_plain(scheduler.state_dict(), f"the state of {type(scheduler.scheduler).__name__}")
    for registered in accelerator._custom_objects:
        check_plain(registered.state_dict(), f"the state of {type(registered).__name__}")


def open_gradients(accelerator: Accelerator) -> list[list[torch.Tensor | None]] | None:
    """The gradients of a window that is not complete, by optimizer; none where nothing is being accumulated."""
    if accelerator.sync_gradients:
        return None
    return [[parameter.grad for parameter in _parameters(optimizer)] for optimizer in accelerator._optimizers]


def reopen_gradients(accelerator: Accelerator, saved: list[list[torch.Tensor | None]] | None) -> None:
    """Take back what `open_gradients` gave; how much of the window is done, accelerate knows itself."""
    for optimizer, gradients in zip(accelerator._optimizers, saved or (), strict=False):
        for parameter, gradient in zip(_parameters(optimizer), gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.to(parameter.device)


def _parameters(optimizer: Any) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def refuse_infinite(accelerator: Accelerator, step: int) -> None:
    """Refuse to save weights that are NaN or infinite."""
    for model in accelerator._models:
        check_weights_are_finite(model.state_dict(), [name for name, _ in model.named_parameters()], step)


def read_state(folder: Path, accelerator: Accelerator) -> dict[str, Any]:
    """What the trainer has to know of an intact checkpoint, with the states of this process's generators."""
    state = store.read(folder / folders.SEAL, sealed=True, verified=True)
    missing = [key for key in ("place", "seed", "kinds", "hooks", "hook_names") if key not in state]
    if missing:
        raise StorageError(f"{folder} has no {', '.join(missing)}: it was not saved by a trainer, so none can go on")
    then, now = state["kinds"], kinds_of(accelerator)
    if then != now:
        raise StorageError(
            f"{folder} does not fit: it was saved with {', '.join(then)}, and this trainer has {', '.join(now)}"
        )
    own = folder / rng_name(accelerator)
    if own.is_file():
        mine = store.read(own, sealed=True)
        state["rng"], state["gradients"] = mine["rng"], mine.get("gradients")
    else:
        log.warning("%s has no %s: it was saved by another number of processes", folder, own.name)
    return state


def load_accelerator(accelerator: Accelerator, folder: Path) -> None:
    """Let accelerate take its part of an intact checkpoint; nothing in its files is run.

    accelerate reads tensors and plain data, except from the files of objects that were registered with it, which it
    unpickles; so these are read here first, by the same rule, and refused.
    """
    for path in sorted(folder.glob("custom_checkpoint_*.pkl")):
        try:
            torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise StorageError(
                f"{path} cannot be read: it holds more than tensors and plain data, and nothing in a file is ever run"
            ) from error
    try:
        accelerator.load_state(str(folder))
    except Exception as error:
        blame(error, f"when accelerate took back its part of {folder}")
        raise

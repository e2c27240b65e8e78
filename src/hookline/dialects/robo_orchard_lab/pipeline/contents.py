"""The contents of a checkpoint: only tensors and plain data, and reading it never executes code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from hookline.checkpoint import store
from hookline.common.plain import check_plain
from hookline.dialects.robo_orchard_core.utils.function_info import logger_of
from hookline.dialects.robo_orchard_lab.pipeline import folders
from hookline.errors import StorageError, blame
from hookline.state import late_parts
from hookline.state.contents import Contents
from hookline.state.finite import check_weights_are_finite

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from accelerate import Accelerator  # type: ignore[import-untyped]

    from hookline.dialects.robo_orchard_lab.pipeline.hook_based_trainer import HookBasedTrainer
    from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import PipelineHooks

log = logger_of(__name__)


class Named(NamedTuple):
    """A hook with a state, and the name under which the state is saved."""

    name: str
    hook: Any


def find_stateful(hooks: PipelineHooks) -> Iterator[Named]:
    """Yield the hooks with a state. Each is named after its class, with a number from the second one of a class on."""
    seen: dict[str, int] = {}
    for hook in hooks.members():
        if hasattr(hook, "state_dict") and hasattr(hook, "load_state_dict"):
            kind = type(hook).__name__
            seen[kind] = seen.get(kind, 0) + 1
            yield Named(kind if seen[kind] == 1 else f"{kind}#{seen[kind]}", hook)


class HooksPart(late_parts.HooksPart):
    """The states of the hooks, by their own names."""

    def _hooks(self) -> Iterator[Named]:
        return find_stateful(self._host.hooks)


class RandomPart(late_parts.RandomPart):
    """The random generators of this process. They stay as they are if it was not there when the state was saved."""

    per_rank = False  # every process reads its own file
    loads_without_state = True


class TrainerContents(Contents):
    """The parts that are loaded where a resumed run continues. accelerate has loaded everything else."""

    def __init__(self, trainer: HookBasedTrainer) -> None:
        super().__init__(
            {"hooks": HooksPart(trainer), "writers": late_parts.WritersPart(trainer), "rng": RandomPart(trainer)}
        )
        self._trainer = trainer

    def tensor_holders(self) -> Iterable[Any]:
        """Return the model and the optimizer."""
        return self._trainer.model, self._trainer.optimizer


def own_state(trainer: HookBasedTrainer) -> dict[str, Any]:
    """Return the trainer's part of a checkpoint, without the states that every process writes for itself."""
    return {
        "position": trainer.position.state_dict(),
        "seed": trainer.passes.seed,
        "batches": trainer.passes.length,
        "kinds": kinds_of(trainer.accelerator),
        "hooks": trainer.contents.parts["hooks"].state_dict(),
        "hook_names": [one.name for one in find_stateful(trainer.hooks)],
        "writers": trainer.contents.parts["writers"].state_dict(),
    }


def rng_name(accelerator: Accelerator) -> str:
    """Return the name of the file with the states of this process's random generators."""
    return f"trainer_rng_{accelerator.process_index}.pth"


def kinds_of(accelerator: Accelerator) -> list[str]:
    """Return the class names of all optimizers and schedulers, for comparison with a checkpoint."""
    inner = [one.optimizer for one in accelerator._optimizers] + [one.scheduler for one in accelerator._schedulers]
    return [type(one).__name__ for one in inner]


def refuse_unreadable(accelerator: Accelerator) -> None:
    """Refuse states that could not be read back without executing code from the file."""
    for optimizer in accelerator._optimizers:
        check_plain(optimizer.state_dict()["param_groups"], f"a group of {type(optimizer.optimizer).__name__}")
    for scheduler in accelerator._schedulers:
        check_plain(scheduler.state_dict(), f"the state of {type(scheduler.scheduler).__name__}")
    for registered in accelerator._custom_objects:
        check_plain(registered.state_dict(), f"the state of {type(registered).__name__}")


def collect_open_gradients(accelerator: Accelerator) -> list[list[torch.Tensor | None]] | None:
    """Return the gradients of an incomplete accumulation window, by optimizer; None if no window is open."""
    if accelerator.sync_gradients:
        return None
    return [[parameter.grad for parameter in _parameters(optimizer)] for optimizer in accelerator._optimizers]


def restore_open_gradients(accelerator: Accelerator, saved: list[list[torch.Tensor | None]] | None) -> None:
    """Restore the gradients from `collect_open_gradients`. accelerate itself restores its position in the window."""
    for optimizer, gradients in zip(accelerator._optimizers, saved or (), strict=False):
        for parameter, gradient in zip(_parameters(optimizer), gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.to(parameter.device)


def _parameters(optimizer: Any) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def refuse_infinite(accelerator: Accelerator, step: int) -> None:
    """Refuse to save weights that are NaN or Inf."""
    for model in accelerator._models:
        check_weights_are_finite(model.state_dict(), [name for name, _ in model.named_parameters()], step)


def read_state(folder: Path, accelerator: Accelerator) -> dict[str, Any]:
    """Read the trainer's part of an intact checkpoint, with the states of this process's random generators."""
    state = store.read(folder / folders.SEAL, sealed=True, verified=True)
    missing = [key for key in ("position", "seed", "kinds", "hooks", "hook_names") if key not in state]
    if missing:
        raise StorageError(
            f"{folder} has no {', '.join(missing)}: it was not saved by a trainer, so a trainer cannot resume from it"
        )
    then, now = state["kinds"], kinds_of(accelerator)
    if then != now:
        raise StorageError(
            f"{folder} does not fit: it was saved with {', '.join(then)}, but this trainer has {', '.join(now)}"
        )
    state["meta"] = {"hooks": state["hook_names"]}
    own = folder / rng_name(accelerator)
    if own.is_file():
        mine = store.read(own, sealed=True)
        state["rng"], state["gradients"] = mine["rng"], mine.get("gradients")
    else:
        log.warning("%s has no %s: it was saved with a different number of processes", folder, own.name)
    return state


def load_accelerator(accelerator: Accelerator, folder: Path) -> None:
    """Let accelerate load its part of an intact checkpoint, without executing code from its files.

    accelerate reads only tensors and plain data, with one exception: it unpickles the files of objects that were
    registered with it. So these files are first read here with `weights_only=True`, and refused if that fails.
    """
    for path in sorted(folder.glob("custom_checkpoint_*.pkl")):
        try:
            torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise StorageError(
                f"{path} cannot be read: it holds more than tensors and plain data, and code from a file is never "
                "executed"
            ) from error
    try:
        accelerator.load_state(str(folder))
    except Exception as error:
        blame(error, f"while accelerate loaded its part of {folder}")
        raise

"""The stateful parts of a trainer: the entries of its checkpoints besides `meta`.

    state_dict        the state of the model
    optimizer         the state of the optimizer
    param_schedulers  the state of the schedulers, if they have one
    position          the counters of the loop
    parts             the states of the data pipeline and the renderer, if they have one
    writers           how far the records were written
    hooks             every hook's state under its name
    rng               the states of torch (every device), numpy and Python

A checkpoint is named after its step: `chkpnt00500.pth` after 500 steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from hookline.common.plain import without_numpy
from hookline.dialects.pointrix.engine import parts
from hookline.state import snapshot
from hookline.state.contents import Contents, HostPart, Part
from hookline.state.late_parts import HooksPart, RandomPart
from hookline.state.parts import CountersPart

if TYPE_CHECKING:
    from hookline.dialects.pointrix.engine.base_trainer import BaseTrainer

#: The parts of a trainer whose states are saved together.
STATEFUL = ("datapipeline", "renderer")


class TrainerContents(Contents):
    """The contents of a checkpoint of a trainer."""

    def __init__(self, trainer: BaseTrainer) -> None:
        super().__init__(parts_of(trainer))
        self._trainer = trainer

    def facts(self) -> dict[str, Any]:
        """Return the `meta` of a checkpoint."""
        trainer = self._trainer
        return snapshot.environment() | {
            "experiment_name": trainer.name,
            "seed": trainer.cfg.seed,
            "epoch": 0,
            "iter": trainer.position.iter,
            "world_size": 1,
            "device": trainer.device,
            "hooks": [entry.name for entry in trainer.plan],
        }

    def check(self) -> None:
        """Refuse to save after a loss of NaN or Inf."""
        self._trainer.check_loss()

    def tensor_holders(self) -> Iterable[Any]:
        """Return the model and the optimizer."""
        return self._trainer.model, self._trainer.optimizer

    def weight_names(self) -> list[str]:
        """Return the names of the model's parameters."""
        model = self._trainer.model
        return [name for name, _ in model.named_parameters()] if isinstance(model, nn.Module) else []


def parts_of(trainer: BaseTrainer) -> dict[str, Part]:
    """Return the parts of a trainer by name, in the order in which they are loaded."""
    return {
        "state_dict": ModelPart(trainer),
        "optimizer": OptimizerPart(trainer),
        "param_schedulers": SchedulersPart(trainer),
        "position": CountersPart(trainer),
        "parts": OtherParts(trainer),
        "writers": WriterPart(trainer),
        "hooks": HooksPart(trainer),
        "rng": RandomPart(trainer),
    }


class ModelPart(HostPart):
    """The model: a module, or any object with `get_state_dict` or `state_dict`."""

    needed = True

    def state_dict(self) -> Any:
        """Return the state of the model."""
        return parts.get_state(self._host.model)

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Load the weights."""
        parts.load_model(self._host, state)

    def misfits(self, state: Any, checkpoint: Mapping[str, Any]) -> list[str]:
        """Compare names and shapes, unless the model has its own `load_state_dict`."""
        return parts.model_misfits(self._host.model, state)


class OptimizerPart(HostPart):
    """The optimizer."""

    needed = True

    def state_dict(self) -> Any:
        """Return the state of the optimizer."""
        optimizer = self._host.optimizer
        return without_numpy(optimizer.state_dict()) if optimizer is not None else None

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Load the state."""
        self._host.optimizer.load_state_dict(state)

    def misfits(self, state: Any, checkpoint: Mapping[str, Any]) -> list[str]:
        """Compare groups and shapes, unless the model has its own `load_state_dict`, which may grow it."""
        if parts.has_own_loading(self._host.model):
            return []
        return parts.optimizer_misfits(self._host.optimizer, state)


class SchedulersPart(HostPart):
    """The schedulers."""

    def state_dict(self) -> Any:
        """Return the state of the schedulers."""
        return without_numpy(parts.get_state(self._host.schedulers))

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Load the state, if there is one."""
        if state:
            parts.restore_state(self._host.schedulers, state, "schedulers")


class OtherParts(HostPart):
    """The data pipeline and the renderer."""

    late = True
    loads_without_state = True

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the parts that have one."""
        return {name: state for name in STATEFUL if (state := parts.get_state(getattr(self._host, name)))}

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Restore the state of each part."""
        for name, own in (state or {}).items():
            parts.restore_state(getattr(self._host, name), own, name)


class WriterPart(HostPart):
    """The writer."""

    late = True
    loads_without_state = True

    def state_dict(self) -> Any:
        """Return how far the records were written."""
        return parts.get_state(self._host.writer)

    def load_state_dict(self, state: Any, checkpoint: Mapping[str, Any]) -> None:
        """Drop the records that were written after the checkpoint."""
        if hasattr(self._host.writer, "load_state_dict"):
            self._host.writer.load_state_dict(state or {})

"""BaseOptimizer and OptimizerList: the torch optimizers with which a trainer updates its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hookline.common.forwarding import forwarded
from hookline.dialects.pointrix.utils.base import BaseObject
from hookline.dialects.pointrix.utils.registry import Registry
from hookline.errors import ConfigError, did_you_mean
from hookline.optim.optim import zero_gradients

if TYPE_CHECKING:
    from torch.optim import Optimizer

OPTIMIZER_REGISTRY = Registry(
    "OPTIMIZER", builtin={"BaseOptimizer": "hookline.dialects.pointrix.optimizer.optimizer:BaseOptimizer"}
)


class BaseOptimizer(BaseObject):
    """One torch optimizer. `update_model` makes a step with the current gradients and clears them.

    Args:
        cfg: The fields of `Config`, or None.
        optimizer: The optimizer.
    """

    @dataclass
    class Config:
        """The fields of the section `extra_cfg`."""

        backward: bool = False

    optimizer: Optimizer

    def setup(self, optimizer: Optimizer, **kwargs: Any) -> None:
        """Store the optimizer; a subclass may take more arguments."""
        self.optimizer = optimizer

    def update_model(self, **kwargs: Any) -> None:
        """Make one step; the gradients are already computed. The keywords are the trainer's `optimizer_dict`."""
        self.optimizer.step()
        zero_gradients(self.optimizer)

    param_groups: list[dict[str, Any]] = forwarded("optimizer.param_groups", "Return the parameter groups.")

    def get_lr(self) -> dict[str, list[float]]:
        """Return the learning rates of the groups."""
        return {"lr": [group["lr"] for group in self.param_groups]}

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimizer."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the state of the optimizer."""
        self.optimizer.load_state_dict(dict(state_dict))


class OptimizerList:
    """Several named optimizers, used as one."""

    def __init__(self, optimizer_dict: Mapping[str, Any]) -> None:
        self.optimizer_dict = dict(optimizer_dict)

    def update_model(self, **kwargs: Any) -> None:
        """Make one step of each optimizer."""
        for optimizer in self.optimizer_dict.values():
            optimizer.update_model(**kwargs)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Return the parameter groups of all optimizers."""
        return [group for optimizer in self.optimizer_dict.values() for group in optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each optimizer, by name."""
        return {name: optimizer.state_dict() for name, optimizer in self.optimizer_dict.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the state of each optimizer."""
        for name, state in state_dict.items():
            if name not in self.optimizer_dict:
                raise ConfigError(f"unknown optimizer '{name}'; {did_you_mean(name, self.optimizer_dict)}")
            self.optimizer_dict[name].load_state_dict(state)

    def __len__(self) -> int:
        return len(self.optimizer_dict)

    def __contains__(self, name: object) -> bool:
        return name in self.optimizer_dict

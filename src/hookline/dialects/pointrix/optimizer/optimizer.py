"""BaseOptimizer and OptimizerList: optimizers of torch that a trainer updates its model with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hookline.dialects.pointrix.utils.base import BaseObject
from hookline.dialects.pointrix.utils.registry import Registry
from hookline.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from torch.optim import Optimizer

OPTIMIZER_REGISTRY = Registry(
    "OPTIMIZER", builtin={"BaseOptimizer": "hookline.dialects.pointrix.optimizer.optimizer:BaseOptimizer"}
)


class BaseOptimizer(BaseObject):
    """One optimizer of torch: `update_model` makes a step with the gradients that are there, and clears them.

    Args:
        cfg: The fields of `Config`, or None.
        optimizer: The optimizer.
    """

    @dataclass
    class Config:
        """What its section may say."""

        backward: bool = False

    optimizer: Optimizer

    def setup(self, optimizer: Optimizer, **kwargs: Any) -> None:
        """Take the optimizer; a subclass may take more."""
        self.optimizer = optimizer

    def update_model(self, **kwargs: Any) -> None:
        """One step, with whatever `optimizer_dict` of the trainer has; the gradients are made already."""
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of parameters."""
        return self.optimizer.param_groups

    def get_lr(self) -> dict[str, list[float]]:
        """The learning rates of the groups."""
        return {"lr": [group["lr"] for group in self.param_groups]}

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take it back."""
        self.optimizer.load_state_dict(dict(state_dict))


class OptimizerList:
    """Several optimizers as one, by name."""

    def __init__(self, optimizer_dict: Mapping[str, Any]) -> None:
        self.optimizer_dict = dict(optimizer_dict)

    def update_model(self, **kwargs: Any) -> None:
        """One step of each."""
        for optimizer in self.optimizer_dict.values():
            optimizer.update_model(**kwargs)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all of them."""
        return [group for optimizer in self.optimizer_dict.values() for group in optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """The state of each."""
        return {name: optimizer.state_dict() for name, optimizer in self.optimizer_dict.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Give each its own."""
        for name, state in state_dict.items():
            if name not in self.optimizer_dict:
                raise ConfigError(f"there is no optimizer '{name}' here; {did_you_mean(name, self.optimizer_dict)}")
            self.optimizer_dict[name].load_state_dict(state)

    def __len__(self) -> int:
        return len(self.optimizer_dict)

    def __contains__(self, name: object) -> bool:
        return name in self.optimizer_dict

"""BaseOptimWrapper, the attributes that all optimizer wrappers share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from hookline.common.forwarding import forwarded
from hookline.optim.optim import Optim


class BaseOptimWrapper(Optim):
    """hookline's Optim with MMEngine's names for its parameter groups and states.

    An optimizer with several groups gets one more group without parameters. Schedulers change it like the others, so it
    always holds the base learning rate that the other rates are multiples of. It is saved with the optimizer.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, **options: Any) -> None:
        super().__init__(optimizer, **options)
        self.base_param_settings: dict[str, Any] | None = None
        if len(optimizer.param_groups) > 1:
            self.base_param_settings = {"params": torch.tensor([0.0]), **optimizer.defaults}
            optimizer.register_state_dict_post_hook(self._save_base)
            optimizer.register_load_state_dict_pre_hook(self._load_base)

    def _save_base(self, _: Any, state: dict[str, Any]) -> None:
        base = self.base_param_settings or {}
        state["base_param_settings"] = {name: value for name, value in base.items() if name != "params"}

    def _load_base(self, _: Any, state: dict[str, Any]) -> None:
        saved = state.get("base_param_settings")
        if self.base_param_settings is not None and isinstance(saved, Mapping):
            self.base_param_settings.update({name: value for name, value in saved.items() if name != "params"})

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the optimizer's state."""
        self.optimizer.load_state_dict(dict(state_dict))

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Return the optimizer's groups and, if there is one, the group with the base settings."""
        groups = self.optimizer.param_groups
        return groups if self.base_param_settings is None else [*groups, self.base_param_settings]

    defaults: dict[str, Any] = forwarded("optimizer.defaults", "Return the default settings of a parameter group.")

    def get_lr(self) -> dict[str, list[float]]:
        """Return the learning rates of all groups and, with several groups, their base rate."""
        base = {} if self.base_param_settings is None else {"base_lr": [self.base_param_settings["lr"]]}
        return {**base, "lr": [group["lr"] for group in self.optimizer.param_groups]}

    def get_momentum(self) -> dict[str, list[float]]:
        """Return the momentum of all groups, or their first beta, or 0."""
        groups = self.optimizer.param_groups
        return {"momentum": [group.get("momentum", group.get("betas", (0,))[0]) for group in groups]}

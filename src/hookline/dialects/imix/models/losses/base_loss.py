"""BaseLoss, the base class of losses, and Losser, which adds up the losses of a config."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from hookline.dialects.imix.models.builder import build_loss
from hookline.errors import ConfigError


class BaseLoss(nn.Module, ABC):
    """A loss with a name. `forward` takes the output of the model, and returns the loss or a dict of losses."""

    loss_name = "base_loss"

    def __init__(self, loss_name: str | None = None) -> None:
        super().__init__()
        self.loss_name = loss_name or self.loss_name

    @abstractmethod
    def forward(self, model_output: Any) -> Any:
        """Return the loss of the model's output."""

    def __str__(self) -> str:
        return self.loss_name


class Losser:
    """The losses of a config, as one loss function of an engine.

    It returns the mean of each loss by name, detached, and the sum of those whose name contains `loss` as `total_loss`
    (detached) and as `loss`, which is trained.
    """

    def __init__(self, losses_cfg: Any) -> None:
        built = build_loss(losses_cfg)
        self._losses = built if isinstance(built, list) else [built]

    def __call__(self, model_output: Any) -> dict[str, Tensor]:
        """Return the losses of the model's output."""
        found: dict[str, Tensor] = {}
        for loss in self._losses:
            value = loss(model_output)
            named = value if isinstance(value, Mapping) else {str(loss): value}
            found |= {name: each.mean() for name, each in named.items()}
        trained = [value for name, value in found.items() if "loss" in name]
        if not trained:
            raise ConfigError(f"no name of a loss contains 'loss': {', '.join(found) or 'there is none'}")
        total = sum(trained[1:], trained[0])
        return {name: value.detach() for name, value in found.items()} | {"total_loss": total.detach(), "loss": total}

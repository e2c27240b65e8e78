"""Averages of a model as modules of their own.

EMAHook keeps its averages with `hookline.averaging`, which copies no modules. These are for code that holds an averaged
model itself, and for formulas of one's own: `avg_func`.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from hookline.common import averaging
from hookline.dialects.mmengine.errors import ConfigValueError


class BaseAveragedModel(nn.Module):
    """A copy of a model that follows it; a subclass says in `avg_func` how.

    Args:
        model: The model.
        interval: Average the first step and every so many after it.
        device: Where the average is kept.
        update_buffers: Average floating-point buffers too; otherwise they are the model's current ones.
    """

    #: The average of hookline that does the same, where there is one.
    native: type[averaging.WeightAverage] | None = None
    steps: Tensor

    def __init__(
        self,
        model: nn.Module,
        interval: int = 1,
        device: torch.device | str | None = None,
        update_buffers: bool = False,
    ) -> None:
        super().__init__()
        self.module = deepcopy(model).requires_grad_(False)
        self.interval = interval
        if device is not None:
            self.module.to(device)
        self.register_buffer("steps", torch.tensor(0, dtype=torch.long, device=device))
        self.update_buffers = update_buffers

    def avg_func(self, averaged_param: Tensor, source_param: Tensor, steps: int) -> None:
        """Change a tensor of the average in place, by the model's, after so many steps."""
        raise NotImplementedError(f"{type(self).__name__} has no avg_func that says how it averages")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the average gives."""
        return self.module(*args, **kwargs)

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Take in the weights after a step; the first ones are copied."""
        steps = int(self.steps)
        source: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        for name, parameter in self.module.named_parameters():
            self._average(parameter, source[name], steps)
        for name, buffer in self.module.named_buffers():
            if self.update_buffers:
                self._average(buffer, source[name], steps)
            else:
                buffer.copy_(source[name])
        self.steps += 1

    def _average(self, held: Tensor, source: Tensor, steps: int) -> None:
        if steps == 0 or not held.is_floating_point():
            held.copy_(source)
        elif steps % self.interval == 0:
            self.avg_func(held, source.to(held.device), steps)


class StochasticWeightAverage(BaseAveragedModel):
    """The plain mean of all steps that are averaged."""

    native = averaging.StochasticWeightAverage

    def avg_func(self, averaged_param: Tensor, source_param: Tensor, steps: int) -> None:
        """A running mean."""
        averaged_param.add_((source_param - averaged_param) / (steps // self.interval + 1))


class ExponentialMovingAverage(BaseAveragedModel):
    """The newest step counts `momentum`: e = (1 - momentum) e + momentum x."""

    native: type[averaging.ExponentialMovingAverage] = averaging.ExponentialMovingAverage

    def __init__(
        self,
        model: nn.Module,
        momentum: float = 0.0002,
        interval: int = 1,
        device: torch.device | str | None = None,
        update_buffers: bool = False,
    ) -> None:
        super().__init__(model, interval, device, update_buffers)
        if not 0 < momentum < 1:
            raise ConfigValueError(f"{type(self).__name__}: momentum lies between 0 and 1, and {momentum!r} does not")
        self.momentum = momentum

    def avg_func(self, averaged_param: Tensor, source_param: Tensor, steps: int) -> None:
        """Always the same share."""
        averaged_param.lerp_(source_param, self.momentum)


class MomentumAnnealingEMA(ExponentialMovingAverage):
    """Forgets faster in the beginning: the momentum is gamma / (gamma + steps), and never below `momentum`."""

    native = averaging.MomentumAnnealingEMA

    def __init__(
        self,
        model: nn.Module,
        momentum: float = 0.0002,
        gamma: int = 100,
        interval: int = 1,
        device: torch.device | str | None = None,
        update_buffers: bool = False,
    ) -> None:
        super().__init__(model, momentum, interval, device, update_buffers)
        if gamma <= 0:
            raise ConfigValueError(f"MomentumAnnealingEMA: gamma is above 0, not {gamma!r}")
        self.gamma = gamma

    def avg_func(self, averaged_param: Tensor, source_param: Tensor, steps: int) -> None:
        """Less from step to step, down to `momentum`."""
        averaged_param.lerp_(source_param, max(self.momentum, self.gamma / (self.gamma + steps)))

"""Averaged copies of a model, as modules.

EMAHook keeps its averages with `hookline.common.averaging`, which copies no modules. The classes here are for code that
holds an averaged model itself, and for custom formulas in `avg_func`.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from hookline.common import averaging
from hookline.dialects.mmengine.errors import ConfigValueError

__all__ = ["BaseAveragedModel", "ExponentialMovingAverage", "MomentumAnnealingEMA", "StochasticWeightAverage"]


class BaseAveragedModel(nn.Module):
    """A copy of a model that tracks an average of its weights. A subclass defines the formula in `avg_func`.

    Args:
        model: The model.
        interval: Average the first step and then every `interval` steps.
        device: The device of the average.
        update_buffers: Also average floating-point buffers. Otherwise, the model's current buffers are copied.
    """

    #: The equivalent average in hookline, if there is one.
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
        """Update a tensor of the average in place from the model's tensor, after this many steps."""
        raise NotImplementedError(f"{type(self).__name__} must define avg_func, the formula of its average")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs of the averaged model."""
        return self.module(*args, **kwargs)

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Update the average with the weights after a step. The first weights are copied."""
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
    """The mean of all averaged steps."""

    native = averaging.StochasticWeightAverage

    def avg_func(self, averaged_param: Tensor, source_param: Tensor, steps: int) -> None:
        """Update the running mean."""
        averaged_param.add_((source_param - averaged_param) / (steps // self.interval + 1))


class ExponentialMovingAverage(BaseAveragedModel):
    """An exponential moving average: e = (1 - momentum) e + momentum x."""

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
            raise ConfigValueError(f"{type(self).__name__}: momentum must be between 0 and 1, not {momentum!r}")
        self.momentum = momentum

    def avg_func(self, averaged_param: Tensor, source_param: Tensor, steps: int) -> None:
        """Update the average with a constant momentum."""
        averaged_param.lerp_(source_param, self.momentum)


class MomentumAnnealingEMA(ExponentialMovingAverage):
    """An average that adapts faster at the start: the momentum is gamma / (gamma + steps), but at least `momentum`."""

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
            raise ConfigValueError(f"MomentumAnnealingEMA: gamma must be greater than 0, not {gamma!r}")
        self.gamma = gamma

    def avg_func(self, averaged_param: Tensor, source_param: Tensor, steps: int) -> None:
        """Update the average with a momentum that decreases from step to step, down to `momentum`."""
        averaged_param.lerp_(source_param, max(self.momentum, self.gamma / (self.gamma + steps)))

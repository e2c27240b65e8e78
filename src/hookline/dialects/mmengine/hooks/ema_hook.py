"""EMAHook with MMEngine's parameters and defaults."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from hookline.common.averaging import WeightAverage
from hookline.common.forwarding import forwarded
from hookline.dialects.mmengine.errors import ConfigTypeError
from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.hooks.signatures import with_original_signatures
from hookline.dialects.mmengine.model.averaged_model import BaseAveragedModel
from hookline.dialects.mmengine.registry import MODELS
from hookline.errors import ConfigError, did_you_mean
from hookline.hooks import ema


@with_original_signatures
class EMAHook(ema.EMAHook, Hook):
    """Keeps a moving average of the weights and uses it for validation and testing.

    A checkpoint holds the raw weights in `state_dict` and the averaged ones in `hooks`, so a run can also be resumed
    without this hook.

    Args:
        ema_type: The kind of average: its name or a subclass of BaseAveragedModel.
        strict_load: Raise an error if a saved average does not fit the model.
        begin_iter: The first iteration to average. Set either this or `begin_epoch`.
        begin_epoch: The first epoch to average.
        **kwargs: Options of the average: `momentum`, `gamma`, `interval`, `update_buffers`.
    """

    priority = "NORMAL"
    never_called = ("_swap_ema_parameters", "_swap_ema_state_dict", "_load_state_dict")

    def __init__(
        self,
        ema_type: str | type[Any] = "ExponentialMovingAverage",
        strict_load: bool = False,
        begin_iter: int = 0,
        begin_epoch: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(begin_iter=begin_iter, begin_epoch=begin_epoch, strict_load=strict_load)
        self.average = _build_average(ema_type, kwargs)

    src_model: nn.Module = forwarded("runner.model", "Return the model that is trained.")

    @property
    def ema_model(self) -> BaseAveragedModel:
        """Return an averaged model whose `module` is a new copy of the model with the current averaged weights."""
        made = BaseAveragedModel(self.runner.model, self.average.interval, update_buffers=self.average.update_buffers)
        made.module.load_state_dict(self.averaged_state_dict())
        made.steps.fill_(self.average.steps)
        return made


class ByFormula(WeightAverage):
    """An average with a custom formula: `avg_func(averaged_param, source_param, steps)`."""

    def __init__(self, formula: BaseAveragedModel) -> None:
        super().__init__(formula.interval, formula.update_buffers)
        self._formula = formula

    def update(self, model: nn.Module) -> None:
        """Update the average with the weights after a step. The first weights are copied."""
        if self.steps % self.interval == 0:
            with torch.no_grad():
                self._follow(model)
                if self.steps:
                    for held, live in self._groups:
                        self._change(held, live)
        self.steps += 1

    def _change(self, held: list[Tensor], live: list[Tensor]) -> None:
        for averaged, source in zip(held, live, strict=True):
            self._formula.avg_func(averaged, source.to(averaged.dtype), self.steps)


def _build_average(ema_type: Any, settings: dict[str, Any]) -> WeightAverage:
    """Return the requested average, and refuse settings that it does not accept."""
    kind = MODELS.get(ema_type) if isinstance(ema_type, str) else ema_type
    if not isinstance(kind, type) or not issubclass(kind, (BaseAveragedModel, WeightAverage)):
        known = [name for name in MODELS if name.endswith(("Average", "EMA"))]
        hint = f"; {did_you_mean(ema_type, known)}" if isinstance(ema_type, str) else ""
        raise ConfigTypeError(
            f"EMAHook: ema_type must be the name of an average or a BaseAveragedModel, not {ema_type!r}{hint}"
        )
    taken = [name for name in inspect.signature(kind).parameters if name not in ("model", "kwargs")]
    for name in settings:
        if name not in taken:
            raise ConfigTypeError(f"EMAHook: {kind.__name__} has no parameter '{name}'; {did_you_mean(name, taken)}")
    settings = {name: value for name, value in settings.items() if name != "device"}
    try:
        if issubclass(kind, WeightAverage):
            return kind(**settings)
        if kind.native is not None and _is_built_in(kind):
            return kind.native(**settings)
        return ByFormula(kind(nn.Identity(), **settings))
    except ConfigError as error:
        raise ConfigTypeError(f"EMAHook: {error}") from error


def _is_built_in(kind: type[Any]) -> bool:
    return kind.__module__ == BaseAveragedModel.__module__

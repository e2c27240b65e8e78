"""BaseModel, with one forward for losses, predictions and raw outputs, and the steps that the loops call."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.model.base_model.data_preprocessor import BaseDataPreprocessor
from hookline.dialects.mmengine.model.base_module import BaseModule
from hookline.dialects.mmengine.registry import MODELS
from hookline.plan.scopes import NOTHING


class BaseModel(BaseModule):
    """A model whose `forward(..., mode=)` returns losses, predictions or raw outputs.

    Args:
        data_preprocessor: Prepares batches: a module or a dict with a `type`. By default, batches are only moved to the
            model's device.
        init_cfg: How the weights are initialized; see `BaseModule`.
    """

    def __init__(self, data_preprocessor: Any = None, init_cfg: Any = None) -> None:
        super().__init__(init_cfg)
        if data_preprocessor is None:
            data_preprocessor = BaseDataPreprocessor()
        elif isinstance(data_preprocessor, Mapping):
            data_preprocessor = MODELS.build(data_preprocessor)
        if not isinstance(data_preprocessor, nn.Module):
            raise ConfigTypeError(
                f"{type(self).__name__}: data_preprocessor must be a module or a dict with a 'type', not "
                f"{data_preprocessor!r}"
            )
        self.data_preprocessor = data_preprocessor

    def train_step(self, data: Any, optim_wrapper: Any) -> dict[str, Tensor]:
        """Compute the losses of a batch, update the parameters, and return the values to log."""
        within = optim_wrapper.optim_context(self)
        if within is NOTHING:  # checking is cheaper than entering an empty context
            prepare: Any = self._modules["data_preprocessor"]  # the default one is called directly, which is faster
            plain = prepare.__class__ is BaseDataPreprocessor
            losses = self._run_forward(prepare.cast_data(data) if plain else prepare(data, True), mode="loss")
        else:
            with within:
                losses = self._run_forward(self.data_preprocessor(data, True), mode="loss")
        loss, log_vars = self.parse_losses(losses)
        if loss.__class__ is not Tensor and not isinstance(loss, Tensor):  # the sum of an empty list is the int 0
            raise ConfigValueError(
                f"{type(self).__name__}.forward(mode='loss') returned {sorted(losses)}, and parse_losses, which sums "
                f"the entries with 'loss' in their name, returned {loss!r}, not a tensor: there is nothing to train on"
            )
        optim_wrapper.update_params(loss)
        return log_vars

    def val_step(self, data: Any) -> Any:
        """Return the predictions for a validation batch."""
        return self._run_forward(self.data_preprocessor(data, False), mode="predict")

    def test_step(self, data: Any) -> Any:
        """Return the predictions for a test batch."""
        return self._run_forward(self.data_preprocessor(data, False), mode="predict")

    def parse_losses(self, losses: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss for the backward pass (the sum of all entries named `*loss*`) and the values to log."""
        if losses.__class__ is not dict and not isinstance(losses, Mapping):
            raise ConfigTypeError(
                f"{type(self).__name__}.forward(mode='loss') must return a dict of losses, not a "
                f"{type(losses).__name__}"
            )
        if len(losses) == 1:  # a shortcut for the most common case
            ((name, only),) = losses.items()
            if only.__class__ is Tensor and only.ndim == 0 and "loss" in name:
                return only, {"loss": only, name: only}
        means = {name: _mean(name, value) for name, value in losses.items()}
        summed = [value for name, value in means.items() if "loss" in name]
        loss: Any = summed[0] if len(summed) == 1 else sum(summed)
        return loss, {"loss": loss, **means}

    @abstractmethod
    def forward(self, *args: Any, mode: str = "tensor", **kwargs: Any) -> Any:
        """Return a dict of losses (`mode="loss"`), predictions (`predict`), or raw outputs (`tensor`)."""

    def _run_forward(self, data: Any, mode: str) -> Any:
        if isinstance(data, (list, tuple)):
            return self(*data, mode=mode)
        if isinstance(data, Mapping):
            return self(**data, mode=mode)
        raise ConfigTypeError(
            f"the data_preprocessor of {type(self).__name__} must return a dict, list or tuple for forward, not a "
            f"{type(data).__name__}"
        )


def _mean(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value if value.ndim == 0 else value.mean()
    if isinstance(value, (list, tuple)) and value and all(isinstance(each, Tensor) for each in value):
        return torch.stack([each.mean() for each in value]).sum() if len(value) > 1 else value[0].mean()
    raise ConfigTypeError(f"the loss '{name}' must be a tensor or a list of tensors, not {value!r}")

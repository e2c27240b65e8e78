"""BaseModel: one forward for losses, predictions and plain outputs, and the steps that the loops call."""

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
from hookline.plan.calls import NOTHING


class BaseModel(BaseModule):
    """A model whose `forward(..., mode=)` gives losses, predictions or plain outputs.

    Args:
        data_preprocessor: Prepares batches: a module, or a dict with `type`. Without one, they go to the model's
            device as they are.
        init_cfg: How weights begin; see `BaseModule`.
    """

    def __init__(self, data_preprocessor: Any = None, init_cfg: Any = None) -> None:
        super().__init__(init_cfg)
        if data_preprocessor is None:
            data_preprocessor = BaseDataPreprocessor()
        elif isinstance(data_preprocessor, Mapping):
            data_preprocessor = MODELS.build(data_preprocessor)
        if not isinstance(data_preprocessor, nn.Module):
            raise ConfigTypeError(
                f"{type(self).__name__}: data_preprocessor is a module, or a dict that describes one, not "
                f"{data_preprocessor!r}"
            )
        self.data_preprocessor = data_preprocessor

    def train_step(self, data: Any, optim_wrapper: Any) -> dict[str, Tensor]:
        """One training step: losses of a batch, and the update; gives what is to be logged."""
        within = optim_wrapper.optim_context(self)
        if within is NOTHING:  # asking costs less than entering
            losses = self._run_forward(self._prepared(data, True), mode="loss")
        else:
            with within:
                losses = self._run_forward(self._prepared(data, True), mode="loss")
        loss, log_vars = self.parse_losses(losses)
        if not isinstance(loss, Tensor):  # a sum of nothing
            raise ConfigValueError(
                f"{type(self).__name__}.forward(mode='loss') gives {sorted(losses)}, and the loss that parse_losses "
                f"makes of it, the sum of what has 'loss' in its name, is {loss!r}: there is nothing to train on"
            )
        optim_wrapper.update_params(loss)
        return log_vars

    def val_step(self, data: Any) -> Any:
        """The predictions for a batch of validation."""
        return self._run_forward(self._prepared(data, False), mode="predict")

    def test_step(self, data: Any) -> Any:
        """The predictions for a batch of a test."""
        return self._run_forward(self._prepared(data, False), mode="predict")

    def _prepared(self, data: Any, training: bool) -> Any:
        """A batch as the data_preprocessor makes it; the plain one is asked directly, which takes less time."""
        prepare = self._modules["data_preprocessor"]
        if prepare.__class__ is BaseDataPreprocessor:
            return prepare.cast_data(data)
        return prepare(data, training)  # type: ignore[misc]  # never None

    def parse_losses(self, losses: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss to go back from, which is the sum of all whose name contains `loss`, and what is to be logged."""
        if losses.__class__ is not dict and not isinstance(losses, Mapping):
            raise ConfigTypeError(
                f"{type(self).__name__}.forward(mode='loss') gives a dict of losses, not a {type(losses).__name__}"
            )
        if len(losses) == 1:  # the usual case, without detours
            ((name, only),) = losses.items()
            if only.__class__ is Tensor and only.ndim == 0 and "loss" in name:
                return only, {"loss": only, name: only}
        means = {name: _mean(name, value) for name, value in losses.items()}
        summed = [value for name, value in means.items() if "loss" in name]
        loss: Any = summed[0] if len(summed) == 1 else sum(summed)
        return loss, {"loss": loss, **means}

    @abstractmethod
    def forward(self, *args: Any, mode: str = "tensor", **kwargs: Any) -> Any:
        """Losses as a dict (`mode="loss"`), predictions (`predict`), or what comes out of the net (`tensor`)."""

    def _run_forward(self, data: Any, mode: str) -> Any:
        if isinstance(data, (list, tuple)):
            return self(*data, mode=mode)
        if isinstance(data, Mapping):
            return self(**data, mode=mode)
        raise ConfigTypeError(
            f"the data_preprocessor of {type(self).__name__} gives a dict, list or tuple for its forward, not a "
            f"{type(data).__name__}"
        )


def _mean(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value if value.ndim == 0 else value.mean()
    if isinstance(value, (list, tuple)) and value and all(isinstance(each, Tensor) for each in value):
        return torch.stack([each.mean() for each in value]).sum() if len(value) > 1 else value[0].mean()
    raise ConfigTypeError(f"'{name}' of the losses is a tensor or a list of tensors, not {value!r}")

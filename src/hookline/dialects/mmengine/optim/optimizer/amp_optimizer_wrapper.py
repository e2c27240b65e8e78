"""AmpOptimWrapper, which runs forward passes in lower precision, even on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn

from hookline.common.forwarding import forwarded
from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.optim.optimizer.optimizer_wrapper import OptimWrapper
from hookline.errors import ConfigError, did_you_mean
from hookline.plan.scopes import NOTHING


class AmpOptimWrapper(OptimWrapper):
    """An OptimWrapper whose `optim_context` runs forward passes in float16 or bfloat16.

    Args:
        loss_scale: `dynamic`, a fixed number, or a dict of arguments for torch's GradScaler. A dynamic scale is only
            used with float16, where it helps.
        dtype: `float16`, `bfloat16`, or a torch dtype. Defaults to torch's choice for the device: bfloat16 on the CPU,
            float16 elsewhere. With `float32` and `float64`, nothing is cast.
        use_fsdp: Not supported.
        **kwargs: Arguments of OptimWrapper.
    """

    valid_dtypes = ("float16", "bfloat16", "float32", "float64")

    def __init__(
        self,
        loss_scale: str | float | Mapping[str, Any] = "dynamic",
        dtype: str | torch.dtype | None = None,
        use_fsdp: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if use_fsdp:
            raise ConfigError("AmpOptimWrapper(use_fsdp=True): sharded models are not supported yet")
        if not isinstance(loss_scale, (int, float, Mapping)) and loss_scale != "dynamic":
            raise ConfigTypeError(
                f"loss_scale must be 'dynamic', a number, or a dict for GradScaler, not {loss_scale!r}"
            )
        if isinstance(dtype, str) and dtype not in self.valid_dtypes:
            raise ConfigValueError(f"unknown dtype '{dtype}'; {did_you_mean(dtype, self.valid_dtypes)}")
        if dtype is not None and not isinstance(dtype, (str, torch.dtype)):
            raise ConfigTypeError(f"dtype must be a torch dtype or the name of one, not {dtype!r}")
        self.loss_scale = loss_scale
        self.cast_dtype: torch.dtype | None = getattr(torch, dtype) if isinstance(dtype, str) else dtype
        self._scaler_device = ""
        self._build_scaler(self.parameters()[0].device.type)

    def attach(self, plan: Any, precision: str, device: torch.device, *args: Any, **kwargs: Any) -> None:
        """Join a run, and create the scaler for its device."""
        self._build_scaler(device.type)
        super().attach(plan, precision, device, *args, **kwargs)

    def _build_scaler(self, device: str) -> None:
        if device == self._scaler_device:
            return
        self._scaler_device = device
        if isinstance(self.loss_scale, Mapping):
            self.scaler = torch.amp.GradScaler(device, **self.loss_scale)
        elif isinstance(self.loss_scale, (int, float)):
            self.scaler = FixedScaler(device, float(self.loss_scale))
        else:
            self.scaler = torch.amp.GradScaler(device) if self._dtype(device) is torch.float16 else None

    def _dtype(self, device: str) -> torch.dtype:
        return self.cast_dtype if self.cast_dtype is not None else torch.get_autocast_dtype(device)

    loss_scaler: torch.amp.GradScaler | None = forwarded("scaler", "Return the scaler, if there is one.")

    def optim_context(self, model: nn.Module) -> AbstractContextManager[Any]:
        """Return the context for a forward pass: autocast, plus the context of OptimWrapper."""
        device = next((parameter.device.type for parameter in model.parameters()), "cpu")
        within, dtype = super().optim_context(model), self._dtype(device)
        if dtype not in (torch.float16, torch.bfloat16):
            return within
        cast = torch.autocast(device, dtype)
        return cast if within is NOTHING else _nested(within, cast)

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the optimizer and the scaler."""
        scaler = {} if self.scaler is None else {"loss_scaler": self.scaler.state_dict()}
        return {**super().state_dict(), **scaler}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the states of the optimizer and the scaler."""
        if self.scaler is not None and "loss_scaler" in state_dict:
            self.scaler.load_state_dict(state_dict["loss_scaler"])
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "loss_scaler"})


class FixedScaler(torch.amp.GradScaler):
    """A gradient scaler with a fixed scale."""

    def __init__(self, device: str, scale: float) -> None:
        super().__init__(device, init_scale=scale)
        self._fixed = scale

    def update(self, new_scale: Any = None) -> None:
        """Prepare for the next step and keep the scale."""
        super().update(self._fixed if new_scale is None else new_scale)


@contextmanager
def _nested(first: AbstractContextManager[Any], second: AbstractContextManager[Any]) -> Iterator[None]:
    with first, second:
        yield

"""Compute: the model as a step calls it, on its device and in its precision."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from hookline.common.modes import switch_mode
from hookline.common.precision import PRECISIONS
from hookline.plan.scopes import NOTHING
from hookline.strategies import unwrap

if TYPE_CHECKING:
    from torch import nn


class Compute:
    """The model of a run, its device and its precision.

    Args:
        model: The model as the step calls it. A strategy may wrap it once more when a session begins.
        device: Where batches are moved to.
        precision: `fp32`, `bf16` or `fp16`.
    """

    def __init__(self, model: nn.Module, device: torch.device, precision: str = "fp32") -> None:
        #: The model as the step calls it, and the user's module, without wrappers.
        self.wrapped, self.model = model, unwrap(model)
        self.device = device
        self.precision = precision
        #: True if batches need not be moved, because loaders already put them on the CPU.
        self.on_cpu = device.type == "cpu"

    def replace(self, model: nn.Module, running: bool) -> None:
        """Use another model. During an evaluation, it gets the device and the mode of this one."""
        if running:
            model.to(self.device)
            switch_mode(unwrap(model), self.model.training)
        self.wrapped, self.model = model, unwrap(model)

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context of a forward pass in the precision of the run. It can be entered once."""
        if self.precision == "fp32":
            return NOTHING
        return torch.autocast(self.device.type, getattr(torch, PRECISIONS[self.precision]))

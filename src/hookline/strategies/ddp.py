"""DDP: every process has the whole model, and the gradients are averaged over the processes."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch.nn.parallel import DistributedDataParallel

from hookline.errors import ConfigError, blame, did_you_mean
from hookline.strategies.base import unwrap
from hookline.strategies.processes import TIMEOUT, Processes

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.optim import Optimizer


#: Parameters of DistributedDataParallel that hookline sets.
OWN = ("module", "device_ids", "output_device")
#: torch's error if a parameter got no gradient in the step before.
NO_GRADIENT = "Expected to have finished reduction in the prior iteration"


class DDP(Processes):
    """Train copies of a model in several processes, with torch's DistributedDataParallel.

    Args:
        timeout: The seconds after which training ends if a process does not answer.
        options: More parameters of DistributedDataParallel, such as `find_unused_parameters`.
    """

    name = "ddp"

    def __init__(self, timeout: float = TIMEOUT, **options: Any) -> None:
        super().__init__(timeout)
        known = [name for name in inspect.signature(DistributedDataParallel).parameters if name not in OWN]
        for name in options:
            if name not in known:
                raise ConfigError(
                    f"the strategy 'ddp' has no option '{name}'; {did_you_mean(name, ['timeout', *known])}"
                )
        self.options = options

    def prepare(self, model: nn.Module, optimizers: Iterable[Optimizer], device: torch.device) -> nn.Module:
        """Move the model, and wrap it if it has something to train."""
        if isinstance(model, DistributedDataParallel):
            return model
        self.refuse_other_model(unwrap(model))
        unwrap(model).to(device)
        if not any(parameter.requires_grad for parameter in model.parameters()):
            return model
        devices = None if device.type == "cpu" else [device]
        self.gradients.note_wrapped(model)
        return DistributedDataParallel(model, device_ids=devices, **self.options)

    def without_wrapper(self, wrapped: nn.Module) -> nn.Module:
        """Return the model that an evaluation calls."""
        return unwrap(wrapped) if isinstance(wrapped, DistributedDataParallel) else wrapped

    def explain(self, error: BaseException) -> BaseException:
        """Return the root-cause error; add the setting to an error of torch that names its own."""
        if NO_GRADIENT in str(error):
            blame(
                error,
                "a parameter got no gradient: the loss does not use it, or a hook has frozen it since the strategy "
                "wrapped the model; set strategy: {type: ddp, find_unused_parameters: true}",
            )
        return super().explain(error)

"""One process, one device."""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel


class Single:
    """Everything in this process."""

    rank = 0
    world_size = 1

    def wrap(self, model: nn.Module) -> nn.Module:
        """What the step calls: the model as it was handed over, compiled or wrapped as it may be."""
        return model


def unwrap(model: nn.Module) -> nn.Module:
    """The user's own module, out of what torch.compile, DDP or DataParallel put around it."""
    while True:
        if isinstance(model, (DistributedDataParallel, DataParallel)):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner  # compiled; asking for torch's own class would import its compiler, which takes seconds
        else:
            return model

"""The gradients of a run: synced over processes, dropped, and measured. This base class is for one process."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from torch import nn

    from hookline.strategies.group import Group

NOTHING = nullcontext()


class Gradients:
    """The gradients of one process."""

    #: True if `syncing` is the context of the forward pass, not of the backward pass.
    sync_in_forward: ClassVar[bool] = False

    def syncing(self, model: nn.Module, sync: bool) -> AbstractContextManager[Any]:
        """Return the context of one backward (or forward) pass. `sync` is False inside an accumulation window."""
        return NOTHING

    def sync(self, model: nn.Module) -> None:
        """Sync the gradients of backward passes without sync, for a window that ends early or is saved."""

    def drop(self, model: nn.Module) -> None:
        """Drop gradients that backward passes without sync keep outside the parameters' own gradients."""

    def note_wrapped(self, model: nn.Module) -> None:
        """Remember which parameters require gradients when the model is wrapped for several processes."""

    def averages(self, parameter: Tensor) -> bool:
        """Return whether the gradient of a parameter is averaged over the processes, if there are several."""
        return True

    def norm_of(self, parameters: Iterable[Tensor], norm_type: float = 2.0) -> Tensor:
        """Return the norm of all gradients of these parameters together, on the device, even if they are sharded."""
        return self.norm([p.grad for p in parameters if p.grad is not None], norm_type)

    def norm(self, tensors: list[Tensor], norm_type: float = 2.0) -> Tensor:
        """Return the norm of all tensors together, on the device, even if they are sharded."""
        return torch.nn.utils.get_total_norm(tensors, norm_type)


class CopiedGradients(Gradients):
    """The gradients of a model of which every process has a copy, which DDP wraps."""

    sync_in_forward = True  # DDP decides in the forward pass whether the backward pass syncs

    def __init__(self, group: Group) -> None:
        self._group = group
        #: The parameters that required gradients when DDP wrapped the model; it averages no others. None before that.
        self._averaged: set[int] | None = None

    def note_wrapped(self, model: nn.Module) -> None:
        """Remember which gradients DDP averages: of the parameters that require gradients now."""
        self._averaged = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}

    def averages(self, parameter: Tensor) -> bool:
        """Return whether DDP averages the gradient of a parameter over the processes."""
        return self._averaged is None or id(parameter) in self._averaged

    def syncing(self, model: nn.Module, sync: bool) -> AbstractContextManager[Any]:
        """Return the context of one forward pass; without sync, the gradients stay in this process."""
        return NOTHING if sync or not isinstance(model, DistributedDataParallel) else model.no_sync()

    def sync(self, model: nn.Module) -> None:
        """Average the gradients over the processes. Gradients that are already the same everywhere do not change."""
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        used = torch.tensor([parameter.grad is not None for parameter in trained], dtype=torch.int32)
        for parameter, anywhere in zip(
            trained, self._group.reduce(used, distributed.ReduceOp.MAX).tolist(), strict=True
        ):
            if anywhere:  # all processes exchange the same ones, although some may not have used them
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                distributed.all_reduce(parameter.grad)
                parameter.grad /= self._group.world_size

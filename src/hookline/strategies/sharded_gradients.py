"""The gradients of a sharded model: each process has a part of them, and the whole of them inside a window."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed
from torch.distributed.fsdp import FSDPModule

from hookline.common.sharding import is_sharded, local_part
from hookline.common.torch_private import (
    find_root,
    forget_kept_gradient,
    parameter_groups,
    reduce_kept_gradients,
)
from hookline.strategies.base import unwrap
from hookline.strategies.gradients import NOTHING, Gradients

if TYPE_CHECKING:
    from torch import nn

    from hookline.strategies.group import Group


class ShardedGradients(Gradients):
    """The gradients of a model that was given to `fully_shard`."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def syncing(self, model: nn.Module, sync: bool) -> AbstractContextManager[Any]:
        """Return the context of one backward pass; without sync, whole gradients stay in this process."""
        return NOTHING if sync else _without_sync(unwrap(model))

    def sync(self, model: nn.Module) -> None:
        """Reduce the whole gradients that are kept, as the end of a backward pass does."""
        inner = unwrap(model)
        if isinstance(inner, FSDPModule):
            reduce_kept_gradients(inner)

    def drop(self, model: nn.Module) -> None:
        """Drop the whole gradients that are kept."""
        for group in groups_of(model):
            for parameter in group.fsdp_params:
                forget_kept_gradient(parameter)

    def norm(self, tensors: list[Tensor], norm_type: float = 2.0) -> Tensor:
        """Return the norm of all tensors together, which is the norm of the processes' norms."""
        own = [local_part(each) for each in tensors if is_sharded(each)]
        total = torch.nn.utils.get_total_norm([each for each in own if each.numel()], norm_type)
        norms = [torch.nn.utils.get_total_norm([each for each in tensors if not is_sharded(each)], norm_type)]
        if own:
            device = own[0].device
            norms = [each.to(device) for each in norms]
            found = [torch.zeros((), dtype=torch.float32, device=device) for _ in range(self._group.world_size)]
            distributed.all_gather(found, total.to(device, torch.float32))
            norms += found
        return torch.nn.utils.get_total_norm(norms, norm_type)


@contextmanager
def _without_sync(model: nn.Module) -> Iterator[None]:
    if not isinstance(model, FSDPModule):
        yield
        return
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)


def groups_of(model: nn.Module) -> Iterator[Any]:
    """Yield the groups of parameters that are gathered together, after torch has found out which unit is the root."""
    inner = unwrap(model)
    if isinstance(inner, FSDPModule):
        find_root(inner)
    for module in inner.modules():
        if isinstance(module, FSDPModule):
            yield from parameter_groups(module)

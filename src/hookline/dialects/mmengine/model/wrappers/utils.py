"""Detect model wrappers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.parallel import DataParallel, DistributedDataParallel

from hookline.dialects.mmengine.registry import MODEL_WRAPPERS, Registry

if TYPE_CHECKING:
    from torch import nn


def is_model_wrapper(model: nn.Module, registry: Registry = MODEL_WRAPPERS) -> bool:
    """Return whether a module is a wrapper (DDP, DataParallel or a registered one) whose `module` is the real model."""
    registered = tuple(kind for kind in registry.module_dict.values() if isinstance(kind, type))
    return isinstance(model, (DistributedDataParallel, DataParallel, *registered))

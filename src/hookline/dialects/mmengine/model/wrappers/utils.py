"""Whether something is around a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.parallel import DataParallel, DistributedDataParallel

from hookline.dialects.mmengine.registry import MODEL_WRAPPERS, Registry

if TYPE_CHECKING:
    from torch import nn


def is_model_wrapper(model: nn.Module, registry: Registry = MODEL_WRAPPERS) -> bool:
    """Whether a module is DDP, DataParallel or a registered wrapper, whose `module` is the model itself."""
    registered = tuple(kind for kind in registry.module_dict.values() if isinstance(kind, type))
    return isinstance(model, (DistributedDataParallel, DataParallel, *registered))

"""Small helpers for models and images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase


def has_batch_norm(model: nn.Module) -> bool:
    """Return whether a model has batch norm layers."""
    return any(isinstance(module, _BatchNorm) for module in model.modules())


def is_norm(layer: nn.Module, exclude: Any = None) -> bool:
    """Return whether a layer is a normalization layer that is not excluded."""
    if exclude is not None and isinstance(layer, exclude):
        return False
    return isinstance(layer, (_NormBase, nn.GroupNorm, nn.LayerNorm))


def mmcv_full_available() -> bool:
    """Return whether mmcv's operators are available: always False."""
    return False


def tensor2imgs(tensor: Tensor, mean: Any = None, std: Any = None, to_bgr: bool = True) -> list[Any]:
    """Convert images (N, C, H, W) to a list of uint8 arrays (H, W, C), and undo the scaling by mean and std."""
    channels = tensor.shape[1]
    scale = torch.tensor(std if std is not None else (1,) * channels).view(-1, 1, 1)
    shift = torch.tensor(mean if mean is not None else (0,) * channels).view(-1, 1, 1)
    images = (tensor.detach().cpu() * scale + shift).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
    return [(image.flip(-1) if to_bgr and channels == 3 else image).contiguous().numpy() for image in images]

"""Small helpers for models and images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from hookline.dialects.exports import export_defined
from hookline.dialects.mmengine.not_included import not_included, stands_for


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
    """Convert images (N, C, H, W) to arrays (H, W, C) of the same type, and undo the scaling by mean and std."""
    assert torch.is_tensor(tensor), "as in MMEngine, whose callers catch this type"
    assert tensor.ndim == 4, "images have the shape (N, C, H, W)"
    channels = tensor.shape[1]
    mean, std = (0,) * channels if mean is None else mean, (1,) * channels if std is None else std
    assert channels == len(mean) == len(std), "mean and std have a number per channel"
    assert channels == 3 or (channels == 1 and not to_bgr), "images have three channels, or one and to_bgr=False"
    images = tensor.permute(0, 2, 3, 1) * tensor.new_tensor(std) + tensor.new_tensor(mean)
    return [(image.flip(-1) if to_bgr else image).contiguous().numpy() for image in images.detach().cpu()]


stands_for(__name__, *(f"utils.dl_utils.{name}" for name in ("hub", "time_counter", "visualize")))
not_included(globals(), "TimeCounter", "ToyModel", "fake_run", "load_url", "runtimeinfo_step", "update_params_step")
export_defined(globals())

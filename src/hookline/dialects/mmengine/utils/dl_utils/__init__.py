"""Small things about torch, and what is installed here."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

TORCH_VERSION = torch.__version__


def has_batch_norm(model: nn.Module) -> bool:
    """Whether a model has batch norms."""
    return any(isinstance(module, _BatchNorm) for module in model.modules())


def is_norm(layer: nn.Module, exclude: Any = None) -> bool:
    """Whether a layer is a norm, and not one of those that are excluded."""
    if exclude is not None and isinstance(layer, exclude):
        return False
    return isinstance(layer, (_NormBase, nn.GroupNorm, nn.LayerNorm))


def mmcv_full_available() -> bool:
    """Whether mmcv's operators are there: never."""
    return False


def torch_meshgrid(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Torch's meshgrid, with matrix indices."""
    return torch.meshgrid(*tensors, indexing="ij")


def is_jit_tracing() -> bool:
    """Whether torch is tracing a model."""
    return bool(torch._C._is_tracing())


def set_multi_processing(mp_start_method: str = "fork", opencv_num_threads: int = 0, distributed: bool = False) -> None:
    """How processes are started; where there are several, each computes with one thread, unless that is said."""
    torch.multiprocessing.set_start_method(mp_start_method, force=True)
    if distributed and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


def tensor2imgs(tensor: Tensor, mean: Any = None, std: Any = None, to_bgr: bool = True) -> list[Any]:
    """A batch of images (N, C, H, W) as a list of uint8 arrays (H, W, C), scaled back by mean and std."""
    channels = tensor.shape[1]
    scale = torch.tensor(std if std is not None else (1,) * channels).view(-1, 1, 1)
    shift = torch.tensor(mean if mean is not None else (0,) * channels).view(-1, 1, 1)
    images = (tensor.detach().cpu() * scale + shift).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
    return [(image.flip(-1) if to_bgr and channels == 3 else image).contiguous().numpy() for image in images]


def collect_env() -> dict[str, Any]:
    """Facts about this machine and what is installed, for people."""
    from hookline import __version__

    cuda = torch.cuda.is_available()
    devices = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())] if cuda else []
    return {
        "sys.platform": sys.platform,
        "Platform": platform.platform(),
        "Python": sys.version.replace("\n", ""),
        "CUDA available": cuda,
        **{f"GPU {number}": name for number, name in enumerate(devices)},
        "PyTorch": str(torch.__version__),
        "hookline": __version__,
    }


__all__ = [
    "TORCH_VERSION",
    "collect_env",
    "has_batch_norm",
    "is_jit_tracing",
    "is_norm",
    "mmcv_full_available",
    "set_multi_processing",
    "tensor2imgs",
    "torch_meshgrid",
]

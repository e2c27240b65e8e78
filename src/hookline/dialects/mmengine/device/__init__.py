"""The devices that are available."""

from __future__ import annotations

import torch

from hookline.dialects.exports import export_defined
from hookline.dialects.mmengine.not_included import not_included, stands_for
from hookline.strategies import pick_device


def get_device() -> str:
    """Return the type of device that a run uses by default: `cuda`, `mps`, ..., `cpu`."""
    return pick_device("auto").type


def is_cuda_available() -> bool:
    """Return whether there is a CUDA device."""
    return torch.cuda.is_available()


def is_mps_available() -> bool:
    """Return whether there is an Apple GPU."""
    return torch.backends.mps.is_available()


def is_npu_available() -> bool:
    """Return whether there is an Ascend device: always False, because hookline does not support it."""
    return False


IS_DIPU_AVAILABLE = IS_MLU_AVAILABLE = IS_MUSA_AVAILABLE = IS_NPU_AVAILABLE = False
is_mlu_available = is_dipu_available = is_musa_available = is_npu_support_full_precision = is_npu_available


def get_max_cuda_memory(device: torch.device | None = None) -> int:
    """Return the peak memory of tensors on a CUDA device since the last call, in MB."""
    found = int(torch.cuda.max_memory_allocated(device)) // 2**20
    torch.cuda.reset_peak_memory_stats(device)
    return found


DEVICE = get_device()
stands_for(__name__, "device.utils")
not_included(globals(), "get_max_musa_memory")
export_defined(globals())

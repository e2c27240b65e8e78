"""Which device there is."""

from __future__ import annotations

import torch

from hookline.strategies import pick_device


def get_device() -> str:
    """The kind of device that a run takes unless it is told otherwise: `cuda`, `mps`, ..., `cpu`."""
    return pick_device("auto").type


def is_cuda_available() -> bool:
    """Whether there is a CUDA device."""
    return torch.cuda.is_available()


def is_mps_available() -> bool:
    """Whether there is an Apple GPU."""
    return torch.backends.mps.is_available()


def is_npu_available() -> bool:
    """Whether there is an Ascend device, which is no device of hookline's: never."""
    return False


is_mlu_available = is_dipu_available = is_musa_available = is_npu_support_full_precision = is_npu_available


def get_max_cuda_memory(device: torch.device | None = None) -> int:
    """The most memory that tensors took on a CUDA device since this was last asked, in MB."""
    found = int(torch.cuda.max_memory_allocated(device)) // 2**20
    torch.cuda.reset_peak_memory_stats(device)
    return found


__all__ = [
    "get_device",
    "get_max_cuda_memory",
    "is_cuda_available",
    "is_dipu_available",
    "is_mlu_available",
    "is_mps_available",
    "is_musa_available",
    "is_npu_available",
    "is_npu_support_full_precision",
]

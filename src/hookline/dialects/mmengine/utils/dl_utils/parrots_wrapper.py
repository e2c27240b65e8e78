"""Names of torch that projects import from here."""

import torch
from torch.__config__ import show as get_build_config
from torch.nn import SyncBatchNorm
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.utils.data import DataLoader

__all__ = ["DataLoader", "SyncBatchNorm", "_BatchNorm", "_ConvNd", "_InstanceNorm", "get_build_config"]
TORCH_VERSION, SyncBatchNorm_, PoolDataLoader = torch.__version__, SyncBatchNorm, DataLoader


def is_rocm_pytorch() -> bool:
    """Return whether torch was built for AMD's GPUs."""
    return getattr(torch.version, "hip", None) is not None


def _get_cuda_home() -> str | None:
    from torch.utils.cpp_extension import CUDA_HOME  # slow to import

    return CUDA_HOME

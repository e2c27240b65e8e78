"""Names of torch that projects import from here."""

import torch
from torch.nn import SyncBatchNorm
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

TORCH_VERSION = torch.__version__


def is_rocm_pytorch() -> bool:
    """Return whether torch was built for AMD's GPUs."""
    return getattr(torch.version, "hip", None) is not None


__all__ = ["TORCH_VERSION", "SyncBatchNorm", "_BatchNorm", "_InstanceNorm", "is_rocm_pytorch"]

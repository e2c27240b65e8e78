"""Functions of torch that have changed over time."""

from __future__ import annotations

import torch
from torch import Tensor


def torch_meshgrid(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Torch's meshgrid, with matrix indices."""
    return torch.meshgrid(*tensors, indexing="ij")

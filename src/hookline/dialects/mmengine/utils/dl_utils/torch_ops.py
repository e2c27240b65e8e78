"""Torch functions that differ between torch versions."""

from __future__ import annotations

import torch
from torch import Tensor


def torch_meshgrid(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Call torch's meshgrid with matrix indexing."""
    return torch.meshgrid(*tensors, indexing="ij")

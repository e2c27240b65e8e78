"""Rotations as quaternions (w, x, y, z) and as matrices."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def unitquat_to_rotmat(quat: Tensor) -> Tensor:
    """Return the rotation matrices (..., 3, 3) of unit quaternions (..., 4).

    >>> unitquat_to_rotmat(torch.tensor([1.0, 0.0, 0.0, 0.0])).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    w, x, y, z = quat.unbind(-1)
    rows = (
        (w * w + x * x - y * y - z * z, 2 * (x * y - z * w), 2 * (x * z + y * w)),
        (2 * (x * y + z * w), w * w - x * x + y * y - z * z, 2 * (y * z - x * w)),
        (2 * (x * z - y * w), 2 * (y * z + x * w), w * w - x * x - y * y + z * z),
    )
    return torch.stack([torch.stack(row, -1) for row in rows], -2)


def quat_to_unitquat(r: Tensor) -> Tensor:
    """Return quaternions scaled to the length 1."""
    return functional.normalize(r, dim=-1)


def quat_to_rotmat(r: Tensor) -> Tensor:
    """Return the rotation matrices of quaternions of any length."""
    return unitquat_to_rotmat(quat_to_unitquat(r))

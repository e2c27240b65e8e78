"""Pictures of depths, for writers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def visualize_depth(depth: Any, minmax: tuple[float, float] | None = None, tensorboard: bool = False) -> Any:
    """Return a depth map (height, width) in colors, from red (near) over green to blue (far).

    Args:
        depth: A tensor or an array. NaN counts as 0, which is the background.
        minmax: The nearest and the farthest depth. The default is the range of the positive depths.
        tensorboard: Return a tensor (3, height, width) in [0, 1]; otherwise an array (height, width, 3) of bytes.
    """
    given = depth.detach().cpu().numpy() if isinstance(depth, torch.Tensor) else np.asarray(depth)
    values = np.nan_to_num(given.astype(np.float64))
    if minmax is None:
        positive = values[values > 0]
        minmax = (float(positive.min()), float(values.max())) if positive.size else (0.0, 1.0)
    near, far = minmax
    level = np.clip((values - near) / (far - near + 1e-8), 0.0, 1.0)
    colors = np.clip(1.5 - np.abs(4 * level[..., None] - np.array([1.0, 2.0, 3.0])), 0.0, 1.0)
    if tensorboard:
        return torch.from_numpy(colors.transpose(2, 0, 1)).float()
    return (255 * colors).astype(np.uint8)

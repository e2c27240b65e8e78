from __future__ import annotations

import torch
from torch import Tensor


def box_area(boxes: Tensor) -> Tensor:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def box_iou(first: Tensor, second: Tensor) -> Tensor:
    low = torch.max(first[:, None, :2], second[:, :2])
    high = torch.min(first[:, None, 2:], second[:, 2:])
    both = (high - low).clamp(min=0).prod(2)
    return both / (box_area(first)[:, None] + box_area(second) - both)

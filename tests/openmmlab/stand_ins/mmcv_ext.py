"""A stand-in for `mmcv._ext`, the compiled operators that mmcv-lite does not have: only those that the tests use."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchvision.ops.boxes import box_iou


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Return the indices of the boxes to keep, best first."""
    wide = boxes + boxes.new_tensor([0, 0, offset, offset])
    overlaps = box_iou(wide, wide) > iou_threshold
    dropped = torch.zeros(len(boxes), dtype=torch.bool)
    kept: list[int] = []
    for index in torch.sort(scores, descending=True, stable=True).indices.tolist():
        if not dropped[index]:
            kept.append(index)
            dropped |= overlaps[index]
    return torch.tensor(kept, dtype=torch.long)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"mmcv-lite has no operator {name}, and neither has its stand-in")

    return refuse

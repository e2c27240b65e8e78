from __future__ import annotations

from enum import Enum
from typing import Any


class InterpolationMode(Enum):
    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


class RandomResizedCrop:
    """A base class of a transform that no test uses."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("the stand-in for torchvision does not crop")

"""PixelData: data fields with one height and width."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from torch import Tensor

from hookline.dialects.mmengine.structures.base_data_element import OWN, BaseDataElement


class PixelData(BaseDataElement):
    """Annotations or predictions of pixels: tensors or arrays (channels, height, width) of the same height and width.

    >>> import torch
    >>> found = PixelData(depth=torch.zeros(1, 4, 6))
    >>> found.shape, found[1:3, 2].depth.shape
    ((4, 6), torch.Size([1, 2, 1]))
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in OWN:
            value = self._fitting(name, value)
        super().__setattr__(name, value)

    def _fitting(self, name: str, value: Any) -> Any:
        assert isinstance(value, (Tensor, np.ndarray)), (
            f"'{name}' of a {type(self).__name__} must be a tensor or an array, not a {type(value).__name__}"
        )
        assert not self.shape or tuple(value.shape[-2:]) == self.shape, (
            f"'{name}' has the height and width {tuple(value.shape[-2:])}, but this {type(self).__name__} has "
            f"{self.shape}"
        )
        assert value.ndim in (2, 3), f"'{name}' must have 2 or 3 dimensions, not {value.ndim}"
        if value.ndim == 3:
            return value
        warnings.warn(f"'{name}' has no channels: it is stored with one, as {(1, *value.shape)}", stacklevel=4)
        return value[None]

    def __getitem__(self, item: Any) -> PixelData:
        if not isinstance(item, tuple):
            raise TypeError(f"pixels are selected by height and width, not with a {type(item).__name__}")
        assert len(item) == 2, f"pixels are selected by height and width, not by {len(item)} indices"
        assert self.shape is not None, "there is no field to select pixels of"
        parts: list[slice] = []
        for index, size in zip(item, self.shape, strict=True):
            if not isinstance(index, (int, slice)):
                raise TypeError(f"an index of pixels must be a number or a slice, not a {type(index).__name__}")
            parts.append(slice(index, None, size) if isinstance(index, int) else index)
        made = type(self)(metainfo=self.metainfo)
        for name, value in self.items():
            setattr(made, name, value[(slice(None), *parts)])
        return made

    @property
    def shape(self) -> tuple[int, int] | None:
        """Return height and width; None without data."""
        return tuple(self.values()[0].shape[-2:]) if self._data_fields else None

"""Preprocessing that a model applies to a batch before its forward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hookline.common.forwarding import forwarded
from hookline.data.transfer import to_device
from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.model.utils import stack_batch

CastData = Any


class BaseDataPreprocessor(nn.Module):
    """Moves batches to the device of the model.

    Args:
        non_blocking: Has no effect: data in pinned memory is always copied in the background.
    """

    _device_marker: Tensor

    def __init__(self, non_blocking: bool | None = False) -> None:
        super().__init__()
        self._non_blocking = non_blocking
        self.register_buffer("_device_marker", torch.empty(0), persistent=False)  # moves with the model

    device: torch.device = forwarded("_device_marker.device", "Return the device of the model.")

    def cast_data(self, data: Any) -> Any:
        """Return the batch on the device of the model."""
        device = self._buffers["_device_marker"].device  # type: ignore[union-attr]  # attribute access is far slower
        kind = data.__class__
        if kind is tuple or kind is list or kind is dict:  # looking is faster than rebuilding a batch at every step
            for value in data.values() if kind is dict else data:
                if value.__class__ is not Tensor or value.device != device:
                    break
            else:
                return data
        return to_device(data, device)

    def forward(self, data: Any, training: bool = False) -> Any:
        """Return the batch as the model's forward expects it."""
        return self.cast_data(data)


class ImgDataPreprocessor(BaseDataPreprocessor):
    """Stacks images into one batch: moves them to the device, reorders channels, normalizes, and pads to one size.

    Args:
        mean: The mean of each channel, or one for all channels.
        std: The standard deviation of each channel, or one for all channels.
        pad_size_divisor: Pad height and width to multiples of this.
        pad_value: The value to pad with.
        bgr_to_rgb: Reverse the channels, from BGR to RGB.
        rgb_to_bgr: Reverse the channels, from RGB to BGR.
        non_blocking: Has no effect.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        pad_size_divisor: int = 1,
        pad_value: float = 0,
        bgr_to_rgb: bool = False,
        rgb_to_bgr: bool = False,
        non_blocking: bool | None = False,
    ) -> None:
        super().__init__(non_blocking)
        if bgr_to_rgb and rgb_to_bgr:
            raise ConfigValueError("ImgDataPreprocessor: set bgr_to_rgb or rgb_to_bgr, not both")
        if (mean is None) != (std is None):
            raise ConfigValueError("ImgDataPreprocessor: set both mean and std, or neither")
        self._enable_normalize = mean is not None and std is not None
        if mean is not None and std is not None:
            for name, numbers in (("mean", mean), ("std", std)):
                if len(numbers) not in (1, 3):
                    raise ConfigValueError(f"ImgDataPreprocessor: {name} must have 1 or 3 numbers, not {len(numbers)}")
                self.register_buffer(name, torch.tensor(numbers).view(-1, 1, 1), persistent=False)
        self._channel_conversion = bgr_to_rgb or rgb_to_bgr
        self.pad_size_divisor = pad_size_divisor
        self.pad_value = pad_value

    def forward(self, data: Any, training: bool = False) -> Any:
        """Return the batch with its `inputs` stacked into one tensor."""
        data = self.cast_data(data)
        if not isinstance(data, Mapping) or "inputs" not in data:
            raise ConfigTypeError(f"ImgDataPreprocessor expects a dict with 'inputs', not {type(data).__name__}")
        inputs = data["inputs"]
        if isinstance(inputs, Tensor):
            if inputs.ndim != 4:
                raise ConfigValueError(
                    f"ImgDataPreprocessor expects images of shape (N, C, H, W), not {tuple(inputs.shape)}"
                )
            batch = stack_batch(list(self._convert(inputs)), self.pad_size_divisor, self.pad_value)
        else:
            batch = stack_batch([self._convert(image) for image in inputs], self.pad_size_divisor, self.pad_value)
        return {"data_samples": None, **data, "inputs": batch}

    def _convert(self, image: Tensor) -> Tensor:
        if self._channel_conversion:
            image = image.flip(-3)
        image = image.float()
        return (image - self.mean) / self.std if self._enable_normalize else image

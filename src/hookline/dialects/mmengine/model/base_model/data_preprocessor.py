"""What a model does to a batch before it looks at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hookline.data.transfer import to_device
from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.model.utils import stack_batch


class BaseDataPreprocessor(nn.Module):
    """Brings batches to the device of the model.

    Args:
        non_blocking: Not needed: what lies in pinned memory is copied beside the computation anyway.
    """

    _at: Tensor

    def __init__(self, non_blocking: bool | None = False) -> None:
        super().__init__()
        self._non_blocking = non_blocking
        self.register_buffer("_at", torch.empty(0), persistent=False)  # it moves with the model, so it knows where

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self._at.device

    def cast_data(self, data: Any) -> Any:
        """A batch on the device of the model."""
        device = self._buffers["_at"].device  # type: ignore[union-attr]  # as an attribute, it takes far longer to find
        return data if _is_there(data, device) else to_device(data, device)

    def forward(self, data: Any, training: bool = False) -> Any:
        """The batch as the model's forward takes it."""
        return self.cast_data(data)


def _is_there(data: Any, device: torch.device) -> bool:
    """Whether a plain batch is on a device; quicker to ask than to build the batch again, which a step would feel."""
    kind = data.__class__
    if kind is not tuple and kind is not list and kind is not dict:
        return False
    for value in data.values() if kind is dict else data:
        if value.__class__ is not Tensor or value.device != device:
            return False
    return True


class ImgDataPreprocessor(BaseDataPreprocessor):
    """Makes one batch of images: to the device, channels in order, normalized, padded to one size.

    Args:
        mean: The mean of each channel, or of all.
        std: The standard deviation of each channel, or of all.
        pad_size_divisor: Height and width become multiples of this.
        pad_value: What is put around images.
        bgr_to_rgb: Turn the channels round; or
        rgb_to_bgr: likewise.
        non_blocking: Not needed.
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
            raise ConfigValueError("ImgDataPreprocessor: give bgr_to_rgb or rgb_to_bgr, not both")
        if (mean is None) != (std is None):
            raise ConfigValueError("ImgDataPreprocessor: give mean and std, or neither")
        self._enable_normalize = mean is not None and std is not None
        if mean is not None and std is not None:
            for name, numbers in (("mean", mean), ("std", std)):
                if len(numbers) not in (1, 3):
                    raise ConfigValueError(f"ImgDataPreprocessor: {name} has 1 or 3 numbers, not {len(numbers)}")
                self.register_buffer(name, torch.tensor(numbers).view(-1, 1, 1), persistent=False)
        self._channel_conversion = bgr_to_rgb or rgb_to_bgr
        self.pad_size_divisor = pad_size_divisor
        self.pad_value = pad_value

    def forward(self, data: Any, training: bool = False) -> Any:
        """The batch with its `inputs` (of a dict), or its first part, as one tensor."""
        data = self.cast_data(data)
        if not isinstance(data, Mapping) or "inputs" not in data:
            raise ConfigTypeError(f"ImgDataPreprocessor takes a dict with 'inputs', not {type(data).__name__}")
        inputs = data["inputs"]
        if isinstance(inputs, Tensor):
            if inputs.ndim != 4:
                raise ConfigValueError(
                    f"ImgDataPreprocessor takes images as (N, C, H, W), not of shape {tuple(inputs.shape)}"
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

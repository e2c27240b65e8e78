"""What torch can tell about, or do to, the device of a run, where it has such a function for that kind of device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def device_function(device: torch.device, name: str) -> Callable[..., Any] | None:
    """`torch.cuda.empty_cache` for `cuda:0` and `empty_cache`; None where that kind of device has no such function.

    >>> device_function(torch.device("xpu"), "empty_cache") is torch.xpu.empty_cache
    True
    >>> device_function(torch.device("cpu"), "empty_cache") is None
    True
    """
    return getattr(getattr(torch, device.type, None), name, None)

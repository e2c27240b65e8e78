"""Access to the functions that torch offers for one kind of device only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def device_function(device: torch.device, name: str) -> Callable[..., Any] | None:
    """Return torch's function for this kind of device, or None if it has none of that name.

    For `cuda:0` and `empty_cache`, this is `torch.cuda.empty_cache`.

    >>> device_function(torch.device("xpu"), "empty_cache") is torch.xpu.empty_cache
    True
    >>> device_function(torch.device("cpu"), "empty_cache") is None
    True
    """
    return getattr(getattr(torch, device.type, None), name, None)

"""Forward passes in lower precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def autocast(
    device_type: str | None = None,
    dtype: torch.dtype | None = None,
    enabled: bool = True,
    cache_enabled: bool | None = None,
) -> Iterator[None]:
    """Enter torch.autocast on the given device, or on the machine's accelerator by default."""
    if device_type is None:
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        device_type = found.type if found is not None else "cpu"
    with torch.autocast(device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled):
        yield

"""Facts about this machine."""

from __future__ import annotations

import platform
import sys
from typing import Any

import torch


def collect_env() -> dict[str, Any]:
    """Return facts about this machine and its installed software, for people to read."""
    from hookline import __version__

    cuda = torch.cuda.is_available()
    devices = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())] if cuda else []
    return {
        "sys.platform": sys.platform,
        "Platform": platform.platform(),
        "Python": sys.version.replace("\n", ""),
        "CUDA available": cuda,
        **{f"GPU {number}": name for number, name in enumerate(devices)},
        "PyTorch": str(torch.__version__),
        "hookline": __version__,
    }

"""The MMEngine release whose names this dialect mirrors."""

from __future__ import annotations

__version__ = "0.10.7"
version_info = (0, 10, 7)

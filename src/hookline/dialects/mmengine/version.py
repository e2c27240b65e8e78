"""The release whose names these are."""

from __future__ import annotations

__version__ = "0.10.7"
version_info = (0, 10, 7)

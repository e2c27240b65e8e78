"""The MMEngine release whose names this dialect mirrors."""

from __future__ import annotations

from hookline.dialects.mmengine.not_included import not_included

__version__ = "0.10.7"
version_info = (0, 10, 7)
not_included(globals(), "parse_version_info")

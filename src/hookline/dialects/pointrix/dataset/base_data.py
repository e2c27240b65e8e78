"""The registry of data sets, under the name of the module that has it in Pointrix."""

from __future__ import annotations

from hookline.dialects.pointrix.dataset import DATA_SET_REGISTRY

__all__ = ["DATA_SET_REGISTRY"]

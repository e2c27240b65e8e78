"""The registry of data sets, for the section `datapipeline`. It has no built-in entries."""

from __future__ import annotations

from typing import Any

from hookline.dialects.pointrix.utils.registry import Registry

__all__ = ["DATA_SET_REGISTRY", "parse_data_set"]

DATA_SET_REGISTRY = Registry("DATA_SET")


def parse_data_set(cfg: Any) -> Any:
    """Return the class that a data pipeline's config names as `data_set`."""
    return DATA_SET_REGISTRY.get(cfg.data_set)

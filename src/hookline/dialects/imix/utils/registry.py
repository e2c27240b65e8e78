"""Registry, which maps names to classes, and `build_from_cfg`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hookline.dialects.registry import Registry
from hookline.errors import ConfigError

__all__ = ["Registry", "build_from_cfg"]


def build_from_cfg(cfg: Any, registry: Registry, default_args: Mapping[str, Any] | None = None) -> Any:
    """Build an object from `dict(type=..., ...)`. `default_args` are parameters that the dict does not have."""
    if not isinstance(cfg, Mapping):
        raise ConfigError(f"a {registry.kind} must be a dict with 'type', not {cfg!r}")
    return registry.build({**(default_args or {}), **cfg})

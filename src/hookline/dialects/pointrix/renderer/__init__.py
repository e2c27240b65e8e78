"""The registry of renderers. It has no built-in entries, because Pointrix's own renderers need a GPU."""

from __future__ import annotations

from typing import Any

from hookline.dialects.pointrix.utils import sections
from hookline.dialects.pointrix.utils.registry import Registry

__all__ = ["RENDERER_REGISTRY", "parse_renderer"]

RENDERER_REGISTRY = Registry("RENDERER")


def parse_renderer(cfg: Any, **kwargs: Any) -> Any:
    """Build the renderer that a section names, from the rest of the section and the keywords that it accepts."""
    return sections.build(RENDERER_REGISTRY, cfg, **kwargs)

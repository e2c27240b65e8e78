"""The registry of renderers. There are none in it: those of the original need a GPU."""

from __future__ import annotations

from typing import Any

from hookline.dialects.pointrix.utils import sections
from hookline.dialects.pointrix.utils.registry import Registry

__all__ = ["RENDERER_REGISTRY", "parse_renderer"]

RENDERER_REGISTRY = Registry("RENDERER")


def parse_renderer(cfg: Any, **kwargs: Any) -> Any:
    """The renderer that a section names, made with the rest of the section; of the keywords it gets what it takes."""
    return sections.build(RENDERER_REGISTRY, cfg, **kwargs)

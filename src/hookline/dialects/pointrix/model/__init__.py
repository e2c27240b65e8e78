"""The registry of models. There are none in it: a model of points, its losses and metrics are the user's."""

from __future__ import annotations

from typing import Any

from hookline.dialects.pointrix.utils import sections
from hookline.dialects.pointrix.utils.registry import Registry

__all__ = ["MODEL_REGISTRY", "parse_model"]

MODEL_REGISTRY = Registry("MODEL")


def parse_model(cfg: Any, datapipeline: Any, device: str = "cuda") -> Any:
    """The model that a section names, made with the rest of the section, the data pipeline and the device."""
    return sections.build(MODEL_REGISTRY, cfg, datapipeline, device=device)

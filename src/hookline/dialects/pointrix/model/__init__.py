"""The registry of models. Users write the model; `base_model.BaseModel` has losses and metrics of images."""

from __future__ import annotations

from typing import Any

from hookline.dialects.pointrix.utils import sections
from hookline.dialects.pointrix.utils.registry import Registry

__all__ = ["MODEL_REGISTRY", "parse_model"]

MODEL_REGISTRY = Registry("MODEL")


def parse_model(cfg: Any, datapipeline: Any, device: str = "cuda") -> Any:
    """Build the model that a section names, from the rest of the section, the data pipeline and the device."""
    return sections.build(MODEL_REGISTRY, cfg, datapipeline, device=device)

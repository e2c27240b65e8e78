"""Engines: what trains a model, and what its hooks see."""

from hookline.dialects.imix.engine.base_engine import CommonEngine, EngineBase
from hookline.dialects.imix.engine.imix_engine import imixEngine

__all__ = ["CommonEngine", "EngineBase", "imixEngine"]

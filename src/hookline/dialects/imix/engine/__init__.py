"""Engines, which train a model and which hooks see as `self.trainer`."""

from hookline.dialects.imix.engine.base_engine import CommonEngine, EngineBase
from hookline.dialects.imix.engine.imix_engine import imixEngine

__all__ = ["CommonEngine", "EngineBase", "imixEngine"]

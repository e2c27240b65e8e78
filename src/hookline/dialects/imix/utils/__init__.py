"""Utilities that hooks and scripts import in addition to the engine."""

from hookline.dialects.imix.utils.config import Config

__all__ = ["Config"]

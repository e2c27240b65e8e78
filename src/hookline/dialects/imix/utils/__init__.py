"""What people's hooks and scripts import besides the engine."""

from hookline.dialects.imix.utils.config import Config

__all__ = ["Config"]

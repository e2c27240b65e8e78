"""The settings of a run, out of YAML, JSON and, where the caller says so, Python files."""

from hookline.dialects.mmengine.config.config import Config, ConfigDict, DictAction, read_base

__all__ = ["Config", "ConfigDict", "DictAction", "read_base"]

"""The settings of a run, read from YAML and JSON files and, if the caller allows it, Python files."""

from hookline.dialects.mmengine.config.config import Config, ConfigDict, DictAction, read_base

__all__ = ["Config", "ConfigDict", "DictAction", "read_base"]

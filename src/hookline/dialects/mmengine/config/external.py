"""Bases that another project ships: `_base_ = "mmdet::retinanet/retinanet_r50_fpn_1x_coco.py"`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hookline.dialects.mmengine.config.config_dict import ConfigDict
from hookline.errors import ConfigError


def find_in_project(name: str) -> Path:
    """Return the file of `package::path`, which is in the folder of configs of an installed package."""
    package, _, path = name.partition("::")
    spec = find_spec(package) if package.isidentifier() else None
    if spec is None or spec.origin is None:
        raise ConfigError(f"the base '{name}' is a config of the package '{package}', which is not installed")
    return (Path(spec.origin).parent / ".mim" / "configs" / path).resolve()


def set_scope(value: Any, scope: str) -> Any:
    """Return a config in which every outermost dict with a `type` names the project whose registries know it."""
    if isinstance(value, dict):
        if "type" in value:
            return value if value.get("_scope_") is not None else ConfigDict({**value, "_scope_": scope})
        return ConfigDict({name: set_scope(each, scope) for name, each in value.items()})
    if type(value) in (list, tuple):
        return type(value)(set_scope(each, scope) for each in value)
    return value

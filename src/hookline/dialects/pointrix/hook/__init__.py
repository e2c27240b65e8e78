"""Hooks: the base class, the registry, those that come with it, and what makes them of a config."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from hookline.dialects.pointrix.hook.base_hook import HOOK_REGISTRY, Hook
from hookline.dialects.pointrix.hook.checkpoint_hook import CheckPointHook
from hookline.dialects.pointrix.hook.log_hook import LogHook
from hookline.dialects.pointrix.utils.config import config_to_primitive
from hookline.errors import ConfigError
from hookline.plan.registry import construct

__all__ = ["HOOK_REGISTRY", "CheckPointHook", "Hook", "LogHook", "parse_hooks"]

# What a plan reads from a hook; a config may say it of any hook that has no such parameter itself.
ABOUT_THE_PLAN = ("priority", "on_error")


def parse_hooks(cfg: Mapping[str, Any] | None) -> list[Any]:
    """Hooks of a config, in its order: `{log: {name: LogHook}, save: {name: CheckPointHook, save_step: 500}}`.

    All keys besides `name` are parameters of the hook; `priority` and `on_error` may be said of any. One that is null
    is left out: `trainer.hooks.log=null` on a command line.
    """
    found = config_to_primitive(cfg) or {}
    return [_hook(str(key), given) for key, given in found.items() if given is not None]


def _hook(key: str, given: Any) -> Any:
    if isinstance(given, str):
        given = {"name": given}
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        raise ConfigError(f"hooks: '{key}' is a mapping with the name of a hook, as {{name: LogHook}}, not {given!r}")
    factory = HOOK_REGISTRY.get(given["name"])
    parameters = {name: value for name, value in given.items() if name != "name"}
    known = inspect.signature(factory).parameters
    about = {name: parameters.pop(name) for name in ABOUT_THE_PLAN if name in parameters and name not in known}
    hook = construct(factory, parameters, given["name"])
    for name, value in about.items():
        setattr(hook, name, value)
    return hook

"""Hooks: the base class, the registry, the built-in hooks, and `parse_hooks`, which builds hooks from a config."""

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

# Attributes that the plan reads from a hook. A config may set them for any hook that has no such parameter itself.
PLAN_ATTRIBUTES = ("priority", "on_error")


def parse_hooks(cfg: Mapping[str, Any] | None) -> list[Any]:
    """Build the hooks of a config, in its order.

    A config looks like this: `{log: {name: LogHook}, save: {name: CheckPointHook, save_step: 500}}`.
    All keys except `name` are parameters of the hook. Any hook also takes `priority` and `on_error`. A null entry
    is left out, as with `trainer.hooks.log=null` on a command line.
    """
    found = config_to_primitive(cfg) or {}
    return [_build_hook(str(key), given) for key, given in found.items() if given is not None]


def _build_hook(key: str, given: Any) -> Any:
    if isinstance(given, str):
        given = {"name": given}
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        raise ConfigError(
            f"hooks: '{key}' must be a mapping with the name of a hook, such as {{name: LogHook}}, not {given!r}"
        )
    factory = HOOK_REGISTRY.get(given["name"])
    parameters = {name: value for name, value in given.items() if name != "name"}
    known = inspect.signature(factory).parameters
    attributes = {name: parameters.pop(name) for name in PLAN_ATTRIBUTES if name in parameters and name not in known}
    hook = construct(factory, parameters, given["name"])
    for name, value in attributes.items():
        setattr(hook, name, value)
    return hook

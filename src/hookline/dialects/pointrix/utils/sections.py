"""Objects out of sections of a config that name their class."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hookline.dialects.pointrix.utils.config import config_to_primitive
from hookline.errors import ConfigError

if TYPE_CHECKING:
    from hookline.dialects.pointrix.utils.registry import Registry


def build(registry: Registry, cfg: Any, *args: Any, **offered: Any) -> Any:
    """`{name: Class, ...}` as `Class({...}, *args, **offered)`; of what is offered, the class gets what it takes."""
    given = dict(config_to_primitive(cfg))
    if not isinstance(given.get("name"), str):
        raise ConfigError(f"the section of a {registry.kind} names its class as 'name'; this one has {sorted(given)}")
    factory = registry.get(given.pop("name"))
    return factory(given, *args, **taken(factory, offered))


def taken(factory: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """What a class takes of keywords; one with a `setup` takes what that takes."""
    known = inspect.signature(getattr(factory, "setup", factory)).parameters
    everything = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values())
    return {name: value for name, value in offered.items() if everything or name in known}

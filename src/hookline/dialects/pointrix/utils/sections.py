"""Build objects from sections of a config that name their class."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hookline.dialects.pointrix.utils.config import config_to_primitive
from hookline.errors import ConfigError

if TYPE_CHECKING:
    from hookline.dialects.pointrix.utils.registry import Registry


def build(registry: Registry, cfg: Any, *args: Any, **offered: Any) -> Any:
    """Build `{name: Class, ...}` as `Class({...}, *args, **offered)`, with only the keywords that the class accepts."""
    given = dict(config_to_primitive(cfg))
    if not isinstance(given.get("name"), str):
        raise ConfigError(f"the section of a {registry.kind} needs its class as 'name'; this one has {sorted(given)}")
    factory = registry.get(given.pop("name"))
    return factory(given, *args, **select_accepted(factory, offered))


def select_accepted(factory: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords that a class accepts. If the class has a `setup`, the parameters of `setup` decide."""
    known = inspect.signature(getattr(factory, "setup", factory)).parameters
    everything = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values())
    return {name: value for name, value in offered.items() if everything or name in known}

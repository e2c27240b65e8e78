"""The registry that the dialects share: a user's class replaces a built-in of the same name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hookline.errors import ConfigError
from hookline.plan import registry

T = TypeVar("T", bound=Callable[..., Any])

log = logging.getLogger("hookline")


class Registry(registry.Registry):
    """A map of names to classes. A user may replace built-ins, as the originals' documents do; this logs a warning."""

    def _add(self, name: str, item: T, force: bool) -> T:
        if name in self.builtin and name not in self._registered and not self._same_definition(name, item):
            log.warning("the %s '%s' from %s replaces the built-in one", self.kind, name, item.__module__)
            force = True
        return super()._add(name, item, force)

    def build(self, given: Any, **more: Any) -> Any:
        """Build an object from `dict(type=..., ...)`; return anything that is not a dict unchanged."""
        if not isinstance(given, Mapping):
            return given
        parameters = {**given, **more}
        if "type" not in parameters:
            raise ConfigError(f"a {self.kind} given as a dict needs a 'type'; this one has {sorted(parameters)}")
        kind = parameters.pop("type")
        factory = self.get(kind) if isinstance(kind, str) else kind
        return registry.construct(factory, parameters, kind if isinstance(kind, str) else factory.__name__)

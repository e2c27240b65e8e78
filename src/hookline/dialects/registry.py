"""A registry as the other systems have them: a user's class takes the place of a built-in of the same name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hookline.errors import ConfigError
from hookline.plan import registry

T = TypeVar("T", bound=Callable[..., Any])

log = logging.getLogger("hookline")


class Registry(registry.Registry):
    """Names -> classes; what the system itself brings may be replaced, which is said, because its documents do so."""

    def _add(self, name: str, item: T, force: bool) -> T:
        if name in self.builtin and name not in self._registered and not self._same_definition(name, item):
            log.warning("the %s '%s' of %s takes the place of the built-in one", self.kind, name, item.__module__)
            force = True
        return super()._add(name, item, force)

    def build(self, given: Any, **more: Any) -> Any:
        """An object out of `dict(type=..., ...)`; anything that is no such dict is given back as it is."""
        if not isinstance(given, Mapping):
            return given
        parameters = {**given, **more}
        if "type" not in parameters:
            raise ConfigError(f"a {self.kind} given as a dict needs a 'type'; this one has {sorted(parameters)}")
        kind = parameters.pop("type")
        factory = self.get(kind) if isinstance(kind, str) else kind
        return registry.construct(factory, parameters, kind if isinstance(kind, str) else factory.__name__)

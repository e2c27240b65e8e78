"""A registry as the other systems have them: a user's class takes the place of a built-in of the same name."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeVar

from hookline import registry
from hookline.errors import ConfigError

T = TypeVar("T", bound=Callable[..., Any])

log = logging.getLogger("hookline")


class Place(NamedTuple):
    """The code of the module that was running, which is another one when it is run again, and the line."""

    code: CodeType
    line: int


def _place_of(item: Callable[..., Any]) -> Place | None:
    """Where a class is just being registered; None when that is not in its own module."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != item.__module__:
        frame = frame.f_back
    if frame is None:
        return None
    line, names, outermost = frame.f_lineno, frame.f_globals, frame
    while (frame := frame.f_back) is not None:
        if frame.f_globals is names:
            outermost = frame
    return Place(outermost.f_code, line)


class Registry(registry.Registry):
    """Names -> classes; what the system itself brings may be replaced, which is said, because its documents do so.

    A class that is defined twice in one file is said, too, and not one whose module is run again.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        #: Where the names were registered.
        self._places: dict[str, Place | None] = {}

    def _add(self, name: str, item: T, force: bool) -> T:
        if name in self._builtin and name not in self._registered and not self._same_definition(name, item):
            log.warning("the %s '%s' of %s takes the place of the built-in one", self.kind, name, item.__module__)
            force = True
        place = _place_of(item)
        if not force and self._registered.get(name, item) is not item and self._same_definition(name, item):
            self._tell_if_second(name, item, self._places.get(name), place)
        self._places[name] = place
        return super()._add(name, item, force)

    def _tell_if_second(self, name: str, item: T, earlier: Place | None, now: Place | None) -> None:
        """Say that a class takes the place of an earlier one of the same name in the same file."""
        if earlier is not None and now is not None and earlier.code is now.code and earlier.line != now.line:
            where = f"{item.__module__}, line {now.line},"
            log.warning("the %s '%s' of %s takes the place of the one of line %d", self.kind, name, where, earlier.line)

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

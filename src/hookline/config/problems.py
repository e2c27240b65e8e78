"""Collects the problems of a config. A module that cannot be imported is one problem, however often it is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookline.common.marks import Keys, Problem, dotted
from hookline.config.modules import BrokenModuleError
from hookline.config.names import UnknownNameError

if TYPE_CHECKING:
    from hookline.errors import ConfigError


class Problems:
    """The problems that were found so far."""

    def __init__(self) -> None:
        self.found: list[Problem] = []
        #: Where each broken module is named, by the reason of the failure.
        self._broken: dict[tuple[object, ...], tuple[str, list[Keys]]] = {}
        #: True if a module that registers names could not be imported: names may be unknown because of that.
        self.lacks_names = False

    def note(self, keys: Keys, message: str) -> None:
        """Add a problem with the value at these keys."""
        self.found.append(Problem(keys, message))

    def refuse(self, keys: Keys, error: ConfigError) -> None:
        """Add the refusal of the name at these keys."""
        if isinstance(error, BrokenModuleError):
            self._broken.setdefault(error.origin, (str(error), []))[1].append(keys)
        elif not (self.lacks_names and isinstance(error, UnknownNameError)):
            self.note(keys, str(error))

    def all(self) -> list[Problem]:
        """Return all problems. The one about a broken module is at the first place that names it."""
        broken = []
        for message, (first, *others) in self._broken.values():
            also = ", ".join(dict.fromkeys(dotted(keys) for keys in others))
            broken.append(Problem(first, f"{message}; also needed by {also}" if also else message))
        return [*self.found, *broken]

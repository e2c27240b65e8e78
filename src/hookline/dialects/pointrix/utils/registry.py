"""Names -> classes, as `Registry("HOOK", modules=[...])`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hookline.dialects import registry
from hookline.errors import ConfigError


class UnknownNameError(ConfigError, KeyError):
    """Nothing is registered under a name."""

    __str__ = Exception.__str__  # that of a KeyError shows the message as a piece of Python


class Registry(registry.Registry):
    """What can be named in one section of a config.

    Args:
        name: What it holds: `HOOK`, `MODEL`.
        modules: Modules to import when something is first asked for: importing them registers more.
        builtin: What comes with the dialect, by name, as `module:Class`.
    """

    def __init__(self, name: str, modules: Iterable[str] = (), *, builtin: Mapping[str, str] | None = None) -> None:
        super().__init__(name.lower(), builtin=builtin)
        self.name = name
        self._modules = list(modules)

    def get(self, name: str) -> Callable[..., Any]:
        """What is registered under this name; an unknown one is refused with the nearest."""
        while self._modules:
            importlib.import_module(self._modules.pop(0))
        try:
            return super().get(name)
        except ConfigError as error:
            if name in self:
                raise
            raise UnknownNameError(str(error)) from None

"""The registry: it maps names to classes. Create one with `Registry("HOOK", modules=[...])`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hookline.dialects import registry
from hookline.dialects.errors import SettingKeyError
from hookline.errors import ConfigError


class Registry(registry.Registry):
    """The classes that one section of a config can name.

    Args:
        name: The kind of its entries: `HOOK`, `MODEL`.
        modules: Modules to import before the first lookup. Importing them registers more classes.
        builtin: The classes that come with the dialect, by name, as `module:Class`.
    """

    def __init__(self, name: str, modules: Iterable[str] = (), *, builtin: Mapping[str, str] | None = None) -> None:
        super().__init__(name.lower(), builtin=builtin)
        self.name = name
        self._modules = list(modules)

    def get(self, name: str) -> Callable[..., Any]:
        """Return the class that is registered under this name. Refuse an unknown name and suggest the nearest one."""
        while self._modules:
            importlib.import_module(self._modules.pop(0))
        try:
            return super().get(name)
        except ConfigError as error:
            if name in self:
                raise
            raise SettingKeyError(str(error)) from None

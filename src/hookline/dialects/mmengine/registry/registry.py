"""A registry with the parts that projects use: parents, scopes, and modules that register things when imported."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from hookline.dialects import registry
from hookline.dialects.mmengine.registry.build_functions import build_from_cfg
from hookline.dialects.mmengine.registry.default_scope import current_scope
from hookline.errors import ConfigError


class Registry(registry.Registry):
    """Names -> classes.

    A project's own registry has the one of the same purpose here as its parent: what it does not know, its parent may.
    The parent finds the project's classes as `scope.Name`, or by their names while the project's scope is the current.

    Args:
        name: What is registered here: `hook`, `model`.
        build_func: Builds an object out of a dict; given the registry, too.
        parent: Where to look for what is not here.
        scope: The name of the project; the package that makes the registry, unless given.
        locations: Modules that register things when they are imported; imported when something is looked for.
        builtin: What is here from the beginning, as `module:Name`, imported when it is first asked for.
    """

    def __init__(
        self,
        name: str,
        build_func: Callable[..., Any] | None = None,
        parent: Registry | None = None,
        scope: str | None = None,
        locations: Sequence[str] = (),
        *,
        builtin: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name, builtin=builtin)
        self.name = name
        self.build_func: Callable[..., Any] = build_func or (
            parent.build_func if parent is not None else build_from_cfg
        )
        self.parent = parent
        self.scope = scope if scope is not None else _package_of_the_caller()
        self.children: dict[str, Registry] = {}
        self._locations = list(locations)
        if parent is not None:
            parent.children[self.scope] = self

    @property
    def root(self) -> Registry:
        """The registry that has no parent."""
        return self if self.parent is None else self.parent.root

    @property
    def module_dict(self) -> dict[str, Any]:
        """What was registered here, by name."""
        return dict(self._registered)

    def register_module(self, name: Any = None, force: bool = False, module: Any = None) -> Any:
        """Register a class or function: as a decorator, or with `module`; under its own name, or one or several."""
        if callable(name) and module is None:
            name, module = None, name
        names = [name] if name is None or isinstance(name, str) else name
        if not isinstance(names, Iterable) or not all(each is None or isinstance(each, str) for each in names):
            raise ConfigError(f"a {self.name} is registered under a name or a list of names, not {name!r}")

        def add(item: Any) -> Any:
            if not callable(item):
                raise ConfigError(f"a class or a function can be registered as a {self.name}, not {item!r}")
            for each in names:
                self._add(each or item.__name__, item, force)
            return item

        return add if module is None else add(module)

    def import_from_location(self) -> None:
        """Import the modules that register things here."""
        while self._locations:
            importlib.import_module(self._locations.pop())

    def get(self, key: str) -> Any:
        """What is registered under a name, `scope.Name` too; None where there is nothing."""
        scope, dot, name = key.partition(".")
        if dot and (chosen := self.root._of_scope(scope)) is not None:
            return chosen._own(name)
        child = self.root._of_scope(current_scope())
        looking: Registry | None = self
        if child is not None and self.parent is None and (found := child._own(key)) is not None:
            return found
        while looking is not None:
            if (found := looking._own(key)) is not None:
                return found
            looking = looking.parent
        return None

    def _own(self, name: str) -> Any:
        if not self._holds(name):
            self.import_from_location()
        return super().get(name) if self._holds(name) else None

    def _of_scope(self, scope: str) -> Registry | None:
        if scope == self.scope:
            return self
        found = [each for child in self.children.values() if (each := child._of_scope(scope)) is not None]
        return found[0] if found else None

    def build(self, cfg: Any, *args: Any, **more: Any) -> Any:  # type: ignore[override]  # its name in the original
        """An object out of `dict(type=..., ...)`."""
        return self.build_func(cfg, *args, **more, registry=self)

    def __contains__(self, name: object) -> bool:
        return self._holds(name) or (self.parent is not None and name in self.parent)

    def __iter__(self) -> Iterator[str]:
        """All that can be found by its name alone: its own, its parent's, and those of the current scope."""
        current = self.root._of_scope(current_scope())
        of_scope = current._registered if current is not None and self.parent is None else ()
        return iter(sorted({*super().__iter__(), *(self.parent or ()), *of_scope}))

    def __repr__(self) -> str:
        return f"Registry({self.name}: {', '.join(self)})"


def _package_of_the_caller() -> str:
    """The top package of whoever makes a registry."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    name = str(frame.f_globals.get("__name__", "mmengine")) if frame is not None else "mmengine"
    ours = sys.modules[__name__].__name__.removesuffix(".registry.registry")
    return "mmengine" if name.startswith(ours) else name.partition(".")[0]

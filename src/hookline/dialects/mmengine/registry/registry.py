"""A registry with the features that projects use: parents, scopes, and modules that register classes on import."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hookline.dialects import registry
from hookline.dialects.mmengine.registry.build_functions import build_from_cfg
from hookline.dialects.mmengine.registry.default_scope import DefaultScope, current_scope
from hookline.dialects.mmengine.registry.projects import import_registry
from hookline.errors import ConfigError

__all__ = ["Registry"]


class Registry(registry.Registry):
    """A map of names to classes.

    A project's own registry has the registry here with the same purpose as its parent, which it searches for names it
    does not have. The parent finds the project's classes as `scope.Name`, or by name while the project's scope is the
    current one. For this, the module `registry` of the project is imported, if it has one.

    Args:
        name: The kind of object that is registered here: `hook`, `model`.
        build_func: A function that builds an object from a dict; it also receives the registry.
        parent: The registry to search for names that are not here.
        scope: The name of the project; by default, the package that creates the registry.
        locations: Modules that register classes on import. They are imported when a name is looked up that is missing.
        builtin: The entries that exist from the start, as `module:Name`. Each is imported when it is first requested.
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
        self.scope = scope if scope is not None else _caller_package()
        self.children: dict[str, Registry] = {}
        self._locations = list(locations)
        if parent is not None:
            parent.children[self.scope] = self

    @property
    def root(self) -> Registry:
        """Return the registry at the top, which has no parent."""
        return self if self.parent is None else self.parent.root

    @property
    def module_dict(self) -> dict[str, Any]:
        """Return the classes and functions that were registered here, by name."""
        return dict(self._registered)

    def register_module(self, name: Any = None, force: bool = False, module: Any = None) -> Any:
        """Register a class or function, as a decorator or with `module`, under its own name or the given name(s)."""
        if callable(name) and module is None:
            name, module = None, name
        names = [name] if name is None or isinstance(name, str) else name
        if not isinstance(names, Iterable) or not all(each is None or isinstance(each, str) for each in names):
            raise ConfigError(f"a {self.name} must be registered under a name or a list of names, not {name!r}")

        def add(item: Any) -> Any:
            if not callable(item):
                raise ConfigError(f"only a class or a function can be registered as a {self.name}, not {item!r}")
            for each in names:
                self._add(each or item.__name__, item, force)
            return item

        return add if module is None else add(module)

    def import_from_location(self) -> None:
        """Import the modules that register classes here, once."""
        pending, self._locations = self._locations, []  # while they are imported, they may look up names here
        try:
            for location in pending:
                importlib.import_module(location)
        except BaseException:
            self._locations = pending
            raise

    def get(self, key: str) -> Any:
        """Return the class or function registered under a name or `scope.Name`, or None."""
        scope, name = self.split_scope_key(key)
        if scope is not None and (chosen := self._of_scope(scope)) is not None:
            return chosen._get_own(name) or chosen._get_by_path(key)
        child = self._of_scope(current_scope()) if self.parent is None else None
        searched: Registry | None = self
        if child is not None and (found := child._get_own(key)) is not None:
            return found
        while searched is not None:
            if (found := searched._get_own(key)) is not None:
                return found
            searched = searched.parent
        return None

    def _get_own(self, name: str) -> Any:
        if not self._holds(name):
            self.import_from_location()
        return super().get(name) if self._holds(name) else None

    def _get_by_path(self, path: str) -> Any:
        """Return the class with this path, such as `mmdet.models.RetinaNet`, if it is registered here."""
        module, _, name = path.rpartition(".")
        found = self._get_own(name)
        return found if found is not None and f"{found.__module__}.".startswith(f"{module}.") else None

    @contextmanager
    def switch_scope_and_registry(self, scope: str | None) -> Iterator[Registry]:
        """Make a scope the current one in a `with` block, and yield its registry; with None, keep the current scope.

        If the scope has no registry of this purpose, yield this one.
        """
        with DefaultScope.overwrite_default_scope(scope):
            current = DefaultScope.get_current_instance()
            found = None if current is None else self._of_scope(current.scope_name)
            yield self if found is None else found  # an empty registry is false

    def _of_scope(self, scope: str) -> Registry | None:
        """Return the registry of a project, whose module `registry` is imported first."""
        found = self.root._find_scope(scope)
        if found is None and import_registry(scope):
            found = self.root._find_scope(scope)
        return found

    @staticmethod
    def split_scope_key(key: str) -> tuple[str | None, str]:
        """Return the scope, or None, and the rest of `scope.Name`.

        >>> Registry.split_scope_key("mmdet.ResNet"), Registry.split_scope_key("ResNet")
        (('mmdet', 'ResNet'), (None, 'ResNet'))
        """
        scope, dot, name = key.partition(".")
        return (scope, name) if dot else (None, key)

    def _find_scope(self, scope: str) -> Registry | None:
        if scope == self.scope:
            return self
        found = [each for child in self.children.values() if (each := child._find_scope(scope)) is not None]
        return found[0] if found else None

    def build(self, cfg: Any, *args: Any, **more: Any) -> Any:  # type: ignore[override]  # the original has this signature
        """Build an object from `dict(type=..., ...)`."""
        return self.build_func(cfg, *args, **more, registry=self)

    def __contains__(self, name: object) -> bool:
        return self._holds(name) or (self.parent is not None and name in self.parent)

    def __iter__(self) -> Iterator[str]:
        """Iterate over all names that can be found without a scope: its own, its parent's, and the current scope's."""
        current = self.root._find_scope(current_scope())
        of_scope = current._registered if current is not None and self.parent is None else ()
        return iter(sorted({*super().__iter__(), *(self.parent or ()), *of_scope}))

    def __repr__(self) -> str:
        return f"Registry({self.name}: {', '.join(self)})"


def _caller_package() -> str:
    """Return the top-level package of the code that creates a registry."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    name = str(frame.f_globals.get("__name__", "mmengine")) if frame is not None else "mmengine"
    ours = sys.modules[__name__].__name__.removesuffix(".registry.registry")
    return "mmengine" if name.startswith(ours) else name.partition(".")[0]

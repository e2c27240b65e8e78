"""The default scope: the project whose registries are searched first, as a run names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from hookline.dialects.mmengine.not_included import not_included, stands_for

__all__ = ["DefaultScope", "init_default_scope"]


class DefaultScope:
    """The scope of the current run."""

    _instance_dict: ClassVar[dict[str, DefaultScope]] = {}
    _current: ClassVar[DefaultScope | None] = None

    def __init__(self, name: str, scope_name: str) -> None:
        self.instance_name = name
        self.scope_name = scope_name

    @classmethod
    def get_instance(cls, name: str, scope_name: str = "mmengine") -> DefaultScope:
        """Create a scope and make it the current one."""
        cls._current = cls._instance_dict[name] = cls(name, scope_name)
        return cls._current

    @classmethod
    def get_current_instance(cls) -> DefaultScope | None:
        """Return the scope of the current run; None before the first run."""
        return cls._current

    @classmethod
    def check_instance_created(cls, name: str) -> bool:
        """Return whether a scope was created under this name."""
        return name in cls._instance_dict

    @classmethod
    @contextmanager
    def overwrite_default_scope(cls, scope_name: str | None) -> Iterator[None]:
        """Use another scope inside a `with` block; None keeps the current one."""
        if scope_name is None:
            yield
            return
        before, cls._current = cls._current, cls(scope_name, scope_name)
        try:
            yield
        finally:
            cls._current = before


def init_default_scope(scope: str) -> None:
    """Create a scope and make it the current one."""
    DefaultScope.get_instance(scope, scope)


def current_scope() -> str:
    """Return the name of the current scope."""
    current = DefaultScope.get_current_instance()
    return current.scope_name if current is not None else "mmengine"


stands_for(__name__, "registry.utils")
not_included(globals(), "count_registered_modules", "traverse_registry_tree")

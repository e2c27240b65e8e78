"""Placeholders for names that a dialect lacks, so that the other tests of a file can run."""

from __future__ import annotations

import builtins
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


class LacksNameError(Exception):
    """Raised where a test uses a name that the dialect lacks."""


class Lacking(type):
    """The class of placeholders: they can be inherited from and looked into, but not used."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_use(cls), name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise LacksNameError(f"the dialect has no {cls.__doc__}")


def _use(cls: type) -> Any:
    raise LacksNameError(f"the dialect has no {cls.__doc__}")


def placeholder(module: str, name: str) -> type:
    """Return a placeholder for a name of a module."""
    return Lacking(name, (), {"__doc__": f"{module}.{name}"})


class LackingModules(MetaPathFinder, Loader):
    """Finds modules that a dialect lacks, with a placeholder for every name. It comes after all other finders."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = packages

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find any module of the original."""
        if name.partition(".")[0] not in self.packages:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return an empty module."""
        module = ModuleType(spec.name)
        vars(module)["__getattr__"] = lambda name: _attribute(spec.name, name)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: there is nothing in it."""


def _attribute(module: str, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return placeholder(module, name)


def importing(packages: Sequence[str], checkout: Path) -> Callable[..., Any]:
    """Return an `__import__` that gives the files of a checkout placeholders for what the dialect lacks."""
    real = builtins.__import__

    def import_(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        ours = not level and _is_of_test(globals, checkout)
        try:
            module = real(name, globals, locals, fromlist, level)
        except ModuleNotFoundError as error:
            if not ours or (error.name or "").partition(".")[0] not in packages:
                raise
            lacking = str(error.name)
            spec = LackingModules(packages).find_spec(lacking)
            assert spec is not None, "the name is of the package"
            sys.modules[lacking] = importlib.util.module_from_spec(spec)
            return import_(name, globals, locals, fromlist, level)
        if ours and name.partition(".")[0] in packages:
            for each in fromlist or ():
                if each != "*" and not hasattr(module, each):
                    setattr(module, each, placeholder(name, each))
        return module

    return import_


def _is_of_test(given: Mapping[str, Any] | None, checkout: Path) -> bool:
    return str((given or {}).get("__file__", "")).startswith(str(checkout))

"""Converting classes and functions to text, `module:Name`, and back.

A text from a file must never decide which code is executed. So a class is searched only among the already imported
subclasses of the expected class. Nothing is imported, and no attribute is looked up. If a field accepts any class or
any function, the caller must name the trusted modules: `from_str(text, allow=["my_package.hooks"])`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from hookline.dialects.errors import SettingValueError
from hookline.dialects.robo_orchard_core.utils.function_info import PREFIX, known_as
from hookline.errors import did_you_mean

#: Packages of the original. Texts contain the original's names for their classes.
OURS = ("robo_orchard_core", "robo_orchard_lab")


def qualified_name(value: Any) -> str:
    """Return a class or a function as text. Refuse an object that could not be found again by its name."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not module or not name:
        raise SettingValueError(f"{value!r} cannot be written to a file: it is not a class or a function of a module")
    if not isinstance(value, type) and not inspect.isbuiltin(value) and (not inspect.isfunction(value) or "<" in name):
        raise SettingValueError(
            f"{value!r} cannot be written to a file: only a function at the top level of a module has a name to write"
        )
    return f"{known_as(module)}:{name}"


def find_class(name: str, expected: type, allow: Iterable[str] = ()) -> type:
    """Return the class with this name: the expected class, or a subclass that is imported or in an allowed module."""
    if expected is object:
        found = find_allowed(name, allow)
        if not isinstance(found, type):
            raise SettingValueError(f"'{name}' is not a class")
        return found
    _import(allow)
    known = {qualified_name(cls): cls for cls in _with_subclasses(expected)}
    wanted = known_as(name)
    if wanted not in known:
        _import(_own_module(wanted))
        known = {qualified_name(cls): cls for cls in _with_subclasses(expected)}
    if wanted not in known:
        module = wanted.partition(":")[0]
        imported = module in sys.modules or f"{PREFIX}{module}" in sys.modules
        hint = did_you_mean(wanted, known) if imported else f"import {module} first, or pass allow=['{module}']"
        raise SettingValueError(f"'{name}' is not an imported {expected.__name__} or subclass of it; {hint}")
    return known[wanted]


def find_allowed(name: str, allow: Iterable[str]) -> Any:
    """Return the function or class with this name, if the caller allows its module."""
    allow = list(allow)
    module, _, attribute = name.partition(":")
    if module not in allow:
        raise SettingValueError(
            f"'{name}' would decide which code is executed, which a file may not do; pass the object itself, or trust "
            f"its module: allow=['{module}']"
        )
    _import([module])
    found: Any = sys.modules[module]
    for part in attribute.split("."):
        if part not in vars(found):
            raise SettingValueError(f"{module} has no '{attribute}'")
        found = vars(found)[part]
    return found


def _with_subclasses(expected: type) -> Iterator[type]:
    """Yield a class and all its subclasses. If two have the same name, the newer one is yielded later."""
    yield expected
    subclasses: list[type] = type.__subclasses__(expected)
    for cls in subclasses:
        yield from _with_subclasses(cls)


def _import(modules: Iterable[str]) -> None:
    for module in modules:
        if module not in sys.modules:
            importlib.import_module(module)


def _own_module(name: str) -> list[str]:
    """Return the module of hookline for a name of the original, in a list that may be empty."""
    module = name.partition(":")[0]
    own = f"{PREFIX}{module}"
    try:
        there = module.partition(".")[0] in OURS and importlib.util.find_spec(own) is not None
    except (ImportError, ValueError):
        return []
    return [own] if there else []

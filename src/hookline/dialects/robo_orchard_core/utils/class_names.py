"""Classes and functions as text, `module:Name`, and back.

A text from a file must never decide what is run. So a class is looked for only among the subclasses, already imported,
of the class that is expected; nothing is imported for it, and no attribute is looked up. Where any class at all would
do, or a function, the caller names the modules that are meant: `from_str(text, allow=["my_package.hooks"])`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from hookline.dialects.robo_orchard_core.refusals import SettingValueError
from hookline.dialects.robo_orchard_core.utils.function_info import PREFIX, known_as
from hookline.errors import did_you_mean

#: Packages of the original, whose classes are known by its names.
OURS = ("robo_orchard_core", "robo_orchard_lab")


def name_of(value: Any) -> str:
    """A class or a function of a module as text; what has no name by which it could be found again is refused."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not module or not name:
        raise SettingValueError(f"{value!r} cannot be written to a file: it is no class and no function of a module")
    if not isinstance(value, type) and not inspect.isbuiltin(value) and (not inspect.isfunction(value) or "<" in name):
        raise SettingValueError(
            f"{value!r} cannot be written to a file: only a function at the top of a module has a name there"
        )
    return f"{known_as(module)}:{name}"


def find_class(name: str, expected: type, allow: Iterable[str] = ()) -> type:
    """The class of this name: the expected one, or a subclass of it that is imported or in a module that is allowed."""
    if expected is object:
        found = find_allowed(name, allow)
        if not isinstance(found, type):
            raise SettingValueError(f"'{name}' is no class")
        return found
    _import(allow)
    known = {name_of(cls): cls for cls in _family(expected)}
    wanted = known_as(name)
    if wanted not in known:
        _import(_own_module(wanted))
        known = {name_of(cls): cls for cls in _family(expected)}
    if wanted not in known:
        module = wanted.partition(":")[0]
        imported = module in sys.modules or f"{PREFIX}{module}" in sys.modules
        hint = did_you_mean(wanted, known) if imported else f"import {module} first, or allow it"
        raise SettingValueError(f"'{name}' names no imported {expected.__name__} (or subclass of it); {hint}")
    return known[wanted]


def find_allowed(name: str, allow: Iterable[str]) -> Any:
    """What a module of those that the caller allows calls by this name: a function, or any class."""
    allow = list(allow)
    module, _, attribute = name.partition(":")
    if module not in allow:
        raise SettingValueError(
            f"'{name}' would choose what is run, and a file may not; give the object itself, or say that the module "
            f"is trusted: allow=['{module}']"
        )
    _import([module])
    found: Any = sys.modules[module]
    for part in attribute.split("."):
        if part not in vars(found):
            raise SettingValueError(f"there is no '{attribute}' in {module}")
        found = vars(found)[part]
    return found


def _family(expected: type) -> Iterator[type]:
    """A class and all that were derived from it; of two with the same name, the newer one comes later."""
    yield expected
    subclasses: list[type] = type.__subclasses__(expected)
    for cls in subclasses:
        yield from _family(cls)


def _import(modules: Iterable[str]) -> None:
    for module in modules:
        if module not in sys.modules:
            importlib.import_module(module)


def _own_module(name: str) -> list[str]:
    """The module of this package that a name of the original means, if there is one."""
    module = name.partition(":")[0]
    own = f"{PREFIX}{module}"
    try:
        there = module.partition(".")[0] in OURS and importlib.util.find_spec(own) is not None
    except (ImportError, ValueError):
        return []
    return [own] if there else []

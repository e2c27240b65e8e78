"""Set `__all__` of the modules and packages of a dialect, so that each name is written only once: where it is defined.

These are functions, and not values for `__all__`: type checkers read a module with an `__all__` that they cannot
compute as if it had no names.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any


def export_defined(module: dict[str, Any]) -> None:
    """Export the classes and functions that a module defines. Call it at the end, with `globals()`.

    >>> here = {"__name__": "builtins", "int": int, "_helper": int, "LIMIT": 3, "export_defined": export_defined}
    >>> export_defined(here)
    >>> here["__all__"]
    ['int']
    """
    here = module["__name__"]
    found = [name for name, value in module.items() if callable(value) and getattr(value, "__module__", "") == here]
    module["__all__"] = sorted(name for name in found if not name.startswith("_"))


def export_imported(package: dict[str, Any], *more: str) -> None:
    """Export what a package has imported from its modules, but not the modules. Call it at the end, with `globals()`.

    Names that begin with `_` are exported only if they are among the others that are given.

    >>> here = {"Hook": object, "modules": ModuleType("modules"), "_helper": 1, "export_imported": export_imported}
    >>> export_imported(here)
    >>> here["__all__"]
    ['Hook']
    """
    ours = [name for name, value in package.items() if value is not export_imported]
    found = [name for name in ours if not name.startswith("_") and not isinstance(package[name], ModuleType)]
    package["__all__"] = [*more, *sorted(found)]

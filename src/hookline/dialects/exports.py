"""The names that a package of a dialect exports: those that its modules list in `__all__`."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any


def public_names(package: Mapping[str, Any]) -> list[str]:
    """Return the names in the namespace of a package, without modules and without names that begin with `_`.

    >>> import os
    >>> public_names({"os": os, "Hook": object, "_helper": 1, "public_names": public_names})
    ['Hook']
    """
    found = [name for name, value in package.items() if value is not public_names and not isinstance(value, ModuleType)]
    return sorted(name for name in found if not name.startswith("_"))

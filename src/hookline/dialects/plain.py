"""A config of another system as plain data, to be written down."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def plain_data(value: Any) -> Any:
    """The same in dicts, lists, texts and numbers; what is none of them is told by what it is called."""
    if isinstance(value, Mapping):
        return {str(name): plain_data(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_data(inner) for inner in value]
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    name = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{getattr(value, '__module__', type(value).__module__)}:{name}"

"""Format a config as Python code that can be read again."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from typing import Any

WIDTH = 100


def pretty(config: Mapping[str, Any]) -> str:
    """Return one assignment per name, sorted."""
    lines = [f"{name} = {_format(value, len(str(name)) + 3, 0)}" for name, value in sorted(config.items())]
    return "\n".join(lines) + "\n"


def _format(value: Any, used: int, depth: int) -> str:
    """Format a value on the rest of the line or, where it does not fit, over several lines."""
    flat = _on_one_line(value)
    if len(flat) + used <= WIDTH or not isinstance(value, (dict, list, tuple)) or not value:
        return flat
    inner, outer = "    " * (depth + 1), "    " * depth
    if isinstance(value, dict) and _keys_are_identifiers(value):
        opening, closing = "dict(", ")"
        items = [f"{name}={_format(each, len(inner) + len(name) + 2, depth + 1)}" for name, each in value.items()]
    elif isinstance(value, dict):
        opening, closing = "{", "}"
        items = [f"{key!r}: {_format(each, len(inner) + len(repr(key)) + 3, depth + 1)}" for key, each in value.items()]
    else:
        opening, closing = ("[", "]") if isinstance(value, list) else ("(", ")")
        items = [_format(each, len(inner) + 1, depth + 1) for each in value]
    return opening + "\n" + "".join(f"{inner}{item},\n" for item in items) + outer + closing


def _on_one_line(value: Any) -> str:
    if isinstance(value, dict):
        if _keys_are_identifiers(value):
            return "dict(" + ", ".join(f"{name}={_on_one_line(each)}" for name, each in value.items()) + ")"
        return "{" + ", ".join(f"{key!r}: {_on_one_line(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_on_one_line(each) for each in value) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(_on_one_line(each) for each in value) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    if isinstance(value, type) or callable(value):
        return repr(f"{value.__module__}.{getattr(value, '__qualname__', type(value).__name__)}")
    return repr(value)


def _keys_are_identifiers(value: Mapping[Any, Any]) -> bool:
    return all(isinstance(key, str) and key.isidentifier() and not keyword.iskeyword(key) for key in value)

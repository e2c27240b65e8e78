"""The file and line of a function, for messages."""

from __future__ import annotations

import inspect
import os
from functools import partial


def source_of(function: object) -> str:
    """Return file:line of a function or method, or the type of a callable that has no source.

    A function that only calls another one may name that one in its `__hookline_source__`.
    """
    function = getattr(function, "__hookline_source__", function)
    inner = inspect.unwrap(function) if callable(function) else function
    while isinstance(inner, partial):
        inner = inspect.unwrap(inner.func)
    inner = getattr(inner, "__func__", inner)
    code = getattr(inner, "__code__", None)
    if code is None:
        return f"{type(inner).__module__}.{type(inner).__qualname__}, no source"
    return f"{short_path(code.co_filename)}:{code.co_firstlineno}"


def short_path(path: str) -> str:
    """Return a short path for people: relative, if it is inside hookline or the working directory."""
    package, found, rest = path.rpartition(f"{os.sep}hookline{os.sep}")
    if found and os.path.isfile(os.path.join(package, "hookline", "plan", "points.py")):
        return os.path.join("hookline", rest)
    try:
        inside = os.path.isabs(path) and os.path.commonpath([path, os.getcwd()]) == os.getcwd()
    except (OSError, ValueError):  # the working directory was deleted, or is on another drive
        inside = False
    return os.path.relpath(path) if inside else path

"""One-line descriptions of callables of any kind, and checks of their signatures."""

from __future__ import annotations

import functools
import inspect
import logging
import os
from typing import Any

from hookline.common.escape import escaping
from hookline.dialects.errors import HookTypeError
from hookline.plan.matching import never_runs

#: The prefix of hookline's modules. Users know the classes by the original's names, without it.
PREFIX = "hookline.dialects."


def known_as(module: str) -> str:
    """Return the original's name for a module.

    >>> known_as("hookline.dialects.robo_orchard_core.utils.hook")
    'robo_orchard_core.utils.hook'
    """
    return module.removeprefix(PREFIX)


def logger_of(module: str) -> logging.Logger:
    """Return the logger of a module, under the original's name for it."""
    return escaping(logging.getLogger(known_as(module)))


def class_name(cls: type) -> str:
    """Return a class as users write it: `robo_orchard_core.utils.hook.HookContext`."""
    return f"{known_as(cls.__module__)}.{cls.__name__}"


class FunctionInfo:
    """A callable as the tree of hooks shows it, with its kind, its name and its source.

    >>> FunctionInfo(print)
    <FunctionInfo built-in print from builtins>
    >>> FunctionInfo(functools.partial(print, "step"))
    <FunctionInfo partial of built-in print from builtins>
    """

    def __init__(self, func: Any) -> None:
        self.func = func

    @staticmethod
    def from_callable(func: Any) -> FunctionInfo:
        """Return the FunctionInfo of a callable; the original has this constructor."""
        return FunctionInfo(func)

    def __repr__(self) -> str:
        try:
            what, where = _describe(self.func)
        except Exception:  # an unusual callable may raise any error when it is inspected
            what, where = f"{type(self.func).__name__} object", "an unknown place"
        return f"<FunctionInfo {what} from {where}>"


def _describe(func: Any) -> tuple[str, str]:
    if isinstance(func, functools.partial):
        what, where = _describe(func.func)
        return f"partial of {what}", where
    if inspect.ismethod(func):
        owner = func.__self__
        if isinstance(owner, type):
            return f"class method {owner.__name__}.{func.__name__}", _place(func)
        return f"bound method {_instance(owner)}.{func.__name__}", _place(func)
    if inspect.isfunction(func):
        return f"function {func.__qualname__}", _place(func)
    if inspect.isroutine(func):
        inner = inspect.unwrap(func)
        if inner is not func:  # a cached function, or a static method
            return _describe(inner)
        return f"built-in {func.__qualname__}", str(getattr(func, "__module__", None) or "builtins")
    if isinstance(func, type):
        return f"class {func.__qualname__}", str(func.__module__)
    return f"object {_instance(func)}", _place(type(func).__call__)


def _instance(owner: Any) -> str:
    return f"{type(owner).__name__}(id={id(owner)})"


def _place(func: Any) -> str:
    """Return file:line, relative to the working directory, or the module if the source is unwanted or unknown."""
    code = getattr(inspect.unwrap(func), "__code__", None)
    if code is None or os.environ.get("ROBO_ORCHARD_NO_SOURCE_FILE") == "1":
        return str(getattr(func, "__module__", None) or type(func).__name__)
    path = code.co_filename
    if os.path.isabs(path):
        try:
            path = os.path.relpath(path)
        except ValueError:  # on another drive
            path = code.co_filename
    return f"{path}:{code.co_firstlineno}"


def refuse_uncallable(which: str, function: Any) -> None:
    """Refuse an object that cannot be called with one argument, or whose body would never run."""
    if not callable(function):
        raise HookTypeError(f"{which} must be a function that takes the hook's argument, not {function!r}")
    refuse_wrong_call(function, "one argument", 1, f"{which}=")


def refuse_idle_body(function: Any, label: str = "") -> None:
    """Refuse a function whose body would never run."""
    try:
        idle = never_runs(function)
    except Exception:  # unusual callables may raise any error
        return
    if idle:
        raise HookTypeError(
            f"{label}{FunctionInfo(function)} would never run, because it is a generator or a coroutine"
        )


def refuse_wrong_call(function: Any, with_what: str, arguments: int, label: str = "") -> None:
    """Refuse a function that does not take this number of arguments, or whose body would never run."""
    refuse_idle_body(function, label)
    try:
        signature = inspect.signature(function)
    except Exception:  # some callables have no signature, and unusual ones may raise any error
        return
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        raise HookTypeError(
            f"{label}{FunctionInfo(function)} is called with {with_what}, but takes {signature}"
        ) from None

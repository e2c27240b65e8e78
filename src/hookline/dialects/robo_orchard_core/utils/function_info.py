"""What can be said about a callable in one line, whatever it is."""

from __future__ import annotations

import functools
import inspect
import os
from typing import Any

from hookline.dialects.robo_orchard_core.refusals import HookTypeError

#: Where this package's names begin; people know its classes by what comes after it.
PREFIX = "hookline.dialects."


def known_as(module: str) -> str:
    """A module as people know it; what it logs is under this name, too.

    >>> known_as("hookline.dialects.robo_orchard_core.utils.hook")
    'robo_orchard_core.utils.hook'
    """
    return module.removeprefix(PREFIX)


def class_name(cls: type) -> str:
    """A class as people write it: `robo_orchard_core.utils.hook.HookContext`."""
    return f"{known_as(cls.__module__)}.{cls.__name__}"


class FunctionInfo:
    """A callable as the tree of hooks shows it: what it is, and where it was written.

    >>> FunctionInfo(print)
    <FunctionInfo built-in print from builtins>
    >>> FunctionInfo(functools.partial(print, "step"))
    <FunctionInfo partial of built-in print from builtins>
    """

    def __init__(self, func: Any) -> None:
        self.func = func

    @staticmethod
    def from_callable(func: Any) -> FunctionInfo:
        """The same, by the name that the original gives it."""
        return FunctionInfo(func)

    def __repr__(self) -> str:
        try:
            what, where = _describe(self.func)
        except Exception:  # whatever an odd callable answers when it is asked what it is
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
        if inner is not func:  # a function in a cache, or a static method
            return _describe(inner)
        return f"built-in {func.__qualname__}", str(getattr(func, "__module__", None) or "builtins")
    if isinstance(func, type):
        return f"class {func.__qualname__}", str(func.__module__)
    return f"object {_instance(func)}", _place(type(func).__call__)


def _instance(owner: Any) -> str:
    return f"{type(owner).__name__}(id={id(owner)})"


def _place(func: Any) -> str:
    """file:line, as seen from the working directory; or the module, where the source is not wanted or not known."""
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
    """Refuse what could not be called with one argument, or whose body would never run."""
    if not callable(function):
        raise HookTypeError(f"{which} is a function that takes the hook's argument, not {function!r}")
    refuse_wrong_call(function, "one argument", 1, f"{which}=")


def refuse_wrong_call(function: Any, with_what: str, arguments: int, label: str = "") -> None:
    """Refuse a function that does not take so many arguments, or whose body would never run."""
    try:
        never_runs = inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function)
        signature = inspect.signature(function)
    except Exception:  # some callables cannot say what they take, and odd ones not even what they are
        return
    if never_runs:
        raise HookTypeError(f"{label}{FunctionInfo(function)} would never run: it is a generator or a coroutine")
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        raise HookTypeError(
            f"{label}{FunctionInfo(function)} is called with {with_what}, and takes {signature}"
        ) from None

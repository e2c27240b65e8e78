"""The methods of a hook: which of them run at points, and which are refused, because they would never run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from functools import cached_property, partial, partialmethod, singledispatchmethod
from types import FunctionType, MethodType
from typing import Any

from hookline.errors import HookError, nearest
from hookline.plan.hook import LOOKED_UP, BaseHook, Every
from hookline.plan.known_elsewhere import POINTS_ELSEWHERE
from hookline.plan.points import PREFIXES, Point, near_miss, unknown_point
from hookline.plan.sources import source_of

# A public method without a point's prefix counts as a misspelled point only if it is at least this similar to one.
POINT_CUTOFF = 0.88
# An attribute counts as a misspelled one that hookline looks up only if it is at least this similar to it.
ATTRIBUTE_CUTOFF = 0.9

# Attributes of a class that become methods but cannot be called themselves.
METHODS = (staticmethod, classmethod, partialmethod, singledispatchmethod)
# Attributes of a class whose value is known only when they are read, or whose signature cannot be read.
NOT_READ = (property, cached_property, singledispatchmethod)


def read_hook(
    hook: object, points: dict[str, Point], open_plan: bool = False, unused: Collection[str] = ()
) -> tuple[list[tuple[Point, Callable[..., Any], Every | None]], list[str]]:
    """Return the methods of a hook that run at points, in the order of the points. Refuse a misspelled one.

    In an open plan, a method may belong to a point that nobody declared. The second list has the names of these.
    Methods named in `unused` are ignored.
    """
    cls = type(hook)
    found, undeclared = {}, []
    refuse_own_near_miss(hook, points, open_plan)
    for name in _names(hook, points):
        if name.startswith("_") or name in unused or name in vars(BaseHook):
            continue
        static = _static(hook, name) if name in points else inspect.getattr_static(cls, name)
        if getattr(static, "__hookline_helper__", False):
            continue
        if name in points:
            method = method_of(hook, name)
            if method is not None:
                found[name] = method
            continue
        if not open_plan:
            refuse_near_miss(cls, name)
        if not (callable(static) or isinstance(static, METHODS)):
            continue
        if open_plan and not near_miss(name, points):
            undeclared += [name] * name.startswith(PREFIXES)
        elif name.startswith(PREFIXES) or name in POINTS_ELSEWHERE or nearest(name, points, POINT_CUTOFF):
            where = source_of(getattr(hook, name))
            raise HookError(
                f"{cls.__name__}.{name} ({where}): {unknown_point(name, points)} "
                "If it is a helper, mark it with @not_a_point."
            )
    often = {name: Every(given) for name, given in hook.how_often().items()} if hasattr(hook, "how_often") else {}
    present = [name for name in points if name in found]
    return [(points[name], found[name], often.get(name) or frequency_of(hook, name)) for name in present], undeclared


def _names(hook: object, points: Iterable[str]) -> list[str]:
    """Return the names to look at: names of the class, and points that the object itself has."""
    names = set(dir(type(hook)))
    has_more = hasattr(type(hook), "__getattr__")  # it passes calls on to another object
    own = {name for name in points if name not in names and (has_more or hasattr(hook, name))}
    return sorted(names | own)


def _static(hook: object, name: str) -> Any:
    """Return an attribute of a hook without binding or computing it; None if there is none.

    For a usual method, this does not use the object's `__dict__`: from then on, Python 3.11 would be slower to read any
    of its attributes.
    """
    found = inspect.getattr_static(type(hook), name, None)
    if isinstance(found, (FunctionType, staticmethod, classmethod)):
        bound = getattr(hook, name)
        if getattr(bound, "__func__", bound) is getattr(found, "__func__", found):
            return found
    return inspect.getattr_static(hook, name, None)


def method_of(hook: object, name: str) -> Callable[..., Any] | None:
    """Return the function to call for this name; None if the hook has none. Refuse a value that cannot be called.

    It may be a method of any kind (a static method, a class method, a partial method), or a function or another
    callable that is an attribute of the class or of the hook itself. A function that only passes its arguments on to
    another one may name that one in its `__hookline_direct__`: then no call goes through it.
    """
    static = _static(hook, name)
    method: Any = None if isinstance(static, NOT_READ) else getattr(hook, name, None)
    if callable(method):
        direct = getattr(method, "__hookline_direct__", None)
        if direct is not None and getattr(method, "__self__", None) is hook:
            return MethodType(direct, hook)
        return method  # type: ignore[no-any-return]  # a callable of any kind
    if static is None or (method is None and not isinstance(static, NOT_READ)):
        return None
    raise HookError(
        f"{type(hook).__name__}.{name} must be a method, not an object of the type {type(static).__name__}, which "
        f"would never be called; write def {name}(self, ...)"
    )


def refuse_near_miss(cls: type, name: str) -> None:
    """Refuse a misspelled attribute of the ones that hookline looks up in a hook: it would silently do nothing."""
    best = nearest(name, LOOKED_UP, ATTRIBUTE_CUTOFF)
    if best is not None:
        raise HookError(
            f"{cls.__name__}.{name}: hookline does not use this name, so it would do nothing; did you mean "
            f"'{best}'? If it is a helper, mark it with @not_a_point."
        )


def refuse_own_near_miss(hook: object, points: dict[str, Point], open_plan: bool = False) -> None:
    """Refuse a misspelled point among the callables that a user's hook has set as its own attributes.

    Attributes of hookline's own hooks are not read, because of `__dict__`; see `_static`.
    """
    if type(hook).__module__.startswith("hookline.") or not hasattr(hook, "__dict__"):
        return
    for name, value in vars(hook).items():
        if name.startswith("_") or name in points or hasattr(BaseHook, name) or not callable(value):
            continue
        if near_miss(name, points) or (not open_plan and name in POINTS_ELSEWHERE):
            raise HookError(
                f"{type(hook).__name__}.{name} ({source_of(value)}): {unknown_point(name, points)} "
                "If it is a helper, begin its name with an underscore."
            )


def frequency_of(hook: object, name: str) -> Every | None:
    """Return the frequency that `@every` set on a method of a hook; None without one."""
    static = _static(hook, name)  # the mark may be on a static method or a partial method itself
    method = getattr(hook, name)
    while isinstance(method, partial):
        method = method.func
    return getattr(static, "__hookline_every__", None) or getattr(method, "__hookline_every__", None)

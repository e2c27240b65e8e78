"""A hook as the generators that the core calls: one for its before, and one for its after.

Two, so that an error has the name and the line of the side that raised it. Generators are entered in order, and the one
of a before comes first; so the after is entered, and therefore left, only if the before went well.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from hookline.calls import source_of

if TYPE_CHECKING:
    from hookline.dialects.robo_orchard_core.utils.hook import HookContext

Arounds = tuple[Callable[..., Any], ...]


def by_methods(hook: HookContext[Any]) -> Arounds:
    """Generator functions that call a hook's before and after; the second tells the argument what failed in between."""
    before, after = hook.functions()
    first = () if before is None else (_named(_of_before(before), before, hook),)
    return first if after is None else (*first, _named(_of_after(after), after, hook))


def _of_before(before: Callable[[Any], Any]) -> Callable[..., Any]:
    def around(channel: Any, args: Any) -> Iterator[None]:
        try:
            before(args)
        except BaseException:
            channel.failed_at(args)
            raise
        yield

    return around


def _of_after(after: Callable[[Any], Any]) -> Callable[..., Any]:
    def around(channel: Any, args: Any) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            channel.failed_at(args)
            _tell(args, error)
            after(args)
            raise
        try:
            after(args)
        except BaseException:
            channel.failed_at(args)
            raise

    return around


def by_begin(hook: HookContext[Any]) -> Arounds:
    """The same for a hook that has a `begin` of its own, which is one generator."""

    def around(channel: Any, args: Any) -> Iterator[None]:
        try:
            with hook.begin(args):
                try:
                    yield
                except BaseException as error:
                    _tell(args, error)
                    raise
        except BaseException:
            channel.failed_at(args)
            raise

    return (_named(around, hook.begin, hook),)


def _tell(args: Any, error: BaseException) -> None:
    """Tell the argument what failed, if it has a place for that; one that cannot be written to hinders no after."""
    with suppress(Exception):
        if args.exception is None or isinstance(args.exception, BaseException):  # and no method of that name
            args.exception = error


def number_of(args: Any, name: str) -> int:
    """A counter of an argument; 0, where there is none or it is no number, since nothing may fail while one is noted.

    >>> number_of(3 + 4j, "real"), number_of("text", "real")
    (3, 0)
    """
    try:
        return int(attrgetter(name)(args))
    except Exception:
        return 0


def _named(around: Callable[..., Any], source: Any, hook: HookContext[Any]) -> Callable[..., Any]:
    """Give it the name and the place that notes on errors speak of: those of the code that the user wrote."""
    try:
        while isinstance(source, functools.partial):
            source = source.func
        name = _name_of(source)
        if not hasattr(inspect.unwrap(source), "__code__") and inspect.isfunction(type(source).__call__):
            source = type(source).__call__  # of an object that is called
        source_of(source)
    except Exception:  # an odd callable that answers no question about itself
        name, source = type(source).__name__, hook
    around.__name__ = str(getattr(hook, "name", None) or name)
    cast("Any", around).__hookline_source__ = source
    return around


def _name_of(source: Any) -> str:
    """`Class.method` of a method, and the name of a function, or of the class of an object that is called."""
    owner = getattr(source, "__self__", None)
    if owner is None or isinstance(owner, type) or inspect.ismodule(owner):
        return getattr(source, "__qualname__", None) or type(source).__name__
    return f"{type(owner).__name__}.{source.__name__}"

"""Converting a hook to the generators that the core calls: one for its before, and one for its after.

There are two generators, so that an error shows the name and the line of the side that raised it. Generators are
entered in order, with the before first. So the after is entered, and therefore left, only if the before succeeded.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from hookline.plan.sources import source_of

if TYPE_CHECKING:
    from hookline.dialects.robo_orchard_core.utils.hook import HookContext

Arounds = tuple[Callable[..., Any], ...]


def wrap_methods(hook: HookContext[Any]) -> Arounds:
    """Return generator functions that call a hook's before and after. The second sets `exception` after a failure."""
    before, after = hook.functions()
    first = () if before is None else (_set_name(_wrap_before(before), before, hook),)
    return first if after is None else (*first, _set_name(_wrap_after(after), after, hook))


def _wrap_before(before: Callable[[Any], Any]) -> Callable[..., Any]:
    def around(channel: Any, args: Any) -> Iterator[None]:
        try:
            before(args)
        except BaseException:
            channel.note_failure(args)
            raise
        yield

    return around


def _wrap_after(after: Callable[[Any], Any]) -> Callable[..., Any]:
    def around(channel: Any, args: Any) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            channel.note_failure(args)
            with ExposedError(args, error):
                after(args)
            raise
        try:
            after(args)
        except BaseException:
            channel.note_failure(args)
            raise

    return around


def wrap_begin(hook: HookContext[Any]) -> Arounds:
    """Return one generator function for a hook that defines its own `begin`."""

    def around(channel: Any, args: Any) -> Iterator[None]:
        exposing = ExitStack()
        try:
            with exposing, hook.begin(args):
                try:
                    yield
                except BaseException as error:
                    exposing.enter_context(ExposedError(args, error))
                    raise
        except BaseException:
            channel.note_failure(args)
            raise

    return (_set_name(around, hook.begin, hook),)


class ExposedError:
    """A context in which `args.exception` is the error, if the argument has that attribute.

    An argument that cannot be written to is left alone, so that the after still runs. The attribute is reset at the
    end, because the error refers to frames that refer to the argument. Such a cycle would keep everything that a failed
    step has created in memory.
    """

    def __init__(self, args: Any, error: BaseException) -> None:
        self.args, self.error, self.exposed = args, error, False

    def __enter__(self) -> None:
        with suppress(Exception):
            self.before = self.args.exception
            if self.before is None or isinstance(self.before, BaseException):  # not a method with that name
                self.args.exception = self.error
                self.exposed = True

    def __exit__(self, *failure: object) -> None:
        with suppress(Exception):
            if self.exposed:
                self.args.exception = self.before
        del self.args, self.error


def number_of(args: Any, name: str) -> int:
    """Return a counter of an argument, or 0 if it is missing or not a number. It must not fail while an error is noted.

    >>> number_of(3 + 4j, "real"), number_of("text", "real")
    (3, 0)
    """
    try:
        return int(attrgetter(name)(args))
    except Exception:
        return 0


def _set_name(around: Callable[..., Any], source: Any, hook: HookContext[Any]) -> Callable[..., Any]:
    """Set the name and the source for notes on errors, so that they point to the user's code."""
    try:
        while isinstance(source, functools.partial):
            source = source.func
        name = _name_of(source)
        if not hasattr(inspect.unwrap(source), "__code__") and inspect.isfunction(type(source).__call__):
            source = type(source).__call__  # a callable object
        source_of(source)
    except Exception:  # an unusual callable may raise any error when it is inspected
        name, source = type(source).__name__, hook
    around.__name__ = str(getattr(hook, "name", None) or name)
    cast("Any", around).__hookline_source__ = source
    return around


def _name_of(source: Any) -> str:
    """Return `Class.method` for a method, else the name of the function or of the class of a callable object."""
    owner = getattr(source, "__self__", None)
    if owner is None or isinstance(owner, type) or inspect.ismodule(owner):
        return getattr(source, "__qualname__", None) or type(source).__name__
    return f"{type(owner).__name__}.{source.__name__}"

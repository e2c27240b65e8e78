"""A hook as the generators that the core calls: one for its before, and one for its after.

Two, so that an error has the name and the line of the side that raised it. Generators are entered in order, and the one
of a before comes first; so the after is entered, and therefore left, only if the before went well.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from hookline.plan.calls import source_of

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
            with Told(args, error):
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
        telling = ExitStack()
        try:
            with telling, hook.begin(args):
                try:
                    yield
                except BaseException as error:
                    telling.enter_context(Told(args, error))
                    raise
        except BaseException:
            channel.failed_at(args)
            raise

    return (_named(around, hook.begin, hook),)


class Told:
    """Tells an argument what failed, if it has a place for that, until this is left.

    One that cannot be written to hinders no after. And no longer, because the error knows the frames that know the
    argument: in such a circle, all that a failed step has made would stay in memory.
    """

    def __init__(self, args: Any, error: BaseException) -> None:
        self.args, self.error, self.told = args, error, False

    def __enter__(self) -> None:
        with suppress(Exception):
            self.before = self.args.exception
            if self.before is None or isinstance(self.before, BaseException):  # and no method of that name
                self.args.exception = self.error
                self.told = True

    def __exit__(self, *failure: object) -> None:
        with suppress(Exception):
            if self.told:
                self.args.exception = self.before
        del self.args, self.error


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

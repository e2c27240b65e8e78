"""A hook as the generator that the core calls: its before, the work, its after."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from hookline.calls import source_of

if TYPE_CHECKING:
    from hookline.dialects.robo_orchard_core.utils.hook import HookContext


def by_methods(hook: HookContext[Any]) -> Callable[..., Any]:
    """A generator function that calls a hook's before and after, and tells the argument what failed in between."""
    before, after = hook.functions()

    def around(channel: Any, args: Any) -> Iterator[None]:
        try:
            if before is not None:
                before(args)
        except BaseException:
            channel.failed_at(args)
            raise
        try:
            yield
        except BaseException as error:
            channel.failed_at(args)
            if hasattr(args, "exception"):
                args.exception = error
            if after is not None:
                after(args)
            raise
        try:
            if after is not None:
                after(args)
        except BaseException:
            channel.failed_at(args)
            raise

    return _named(around, before if before is not None else after, hook)


def by_begin(hook: HookContext[Any]) -> Callable[..., Any]:
    """The same for a hook that has a `begin` of its own."""

    def around(channel: Any, args: Any) -> Iterator[None]:
        try:
            with hook.begin(args):
                try:
                    yield
                except BaseException as error:
                    if hasattr(args, "exception"):
                        args.exception = error
                    raise
        except BaseException:
            channel.failed_at(args)
            raise

    return _named(around, hook.begin, hook)


def _named(around: Callable[..., Any], source: Any, hook: HookContext[Any]) -> Callable[..., Any]:
    """Give it the name and the place that notes on errors speak of: those of the code that the user wrote."""
    try:
        owner = getattr(source, "__self__", None)
        if owner is None or isinstance(owner, type) or inspect.ismodule(owner):
            name = getattr(source, "__qualname__", None) or type(source if source is not None else hook).__name__
        else:
            name = type(owner).__name__
        source_of(source)
    except Exception:  # an odd callable that answers no question about itself
        name, source = type(source).__name__, hook
    around.__name__ = str(getattr(hook, "name", None) or name)
    cast("Any", around).__hookline_source__ = source
    return around

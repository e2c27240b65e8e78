"""Hooks with a before and an after, and the channels that they are registered at.

A channel is a scope of a core plan: its hooks are compiled when they are registered, entered in registration order and
left in the same order, each of them if it was entered, whatever else fails.
"""

from __future__ import annotations

import inspect
import textwrap
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Generic, Self, TypeVar

from hookline.dialects.robo_orchard_core.refusals import HookTypeError, HookValueError
from hookline.dialects.robo_orchard_core.utils.function_info import FunctionInfo, class_name
from hookline.dialects.robo_orchard_core.utils.handles import HookHandler, RemoveableHandle
from hookline.dialects.robo_orchard_core.utils.surround import by_begin, by_methods
from hookline.plan import Plan

__all__ = [
    "FunctionInfo",
    "HookContext",
    "HookContextChannel",
    "HookContextFromCallable",
    "HookHandler",
    "RemoveableHandle",
]

T = TypeVar("T")

#: The two names of each method: the original's text speaks of the second ones.
NAMES = {"before": "on_enter", "after": "on_exit"}


class HookContext(Generic[T], metaclass=ABCMeta):
    """Something to do before and after a piece of work.

    A subclass has `before(arg)` and `after(arg)`, or, which is the same, `on_enter` and `on_exit`. The after of a hook
    that was entered runs always. Where something failed, the argument says so: `arg.exception`, where it has one.
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = name

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        own = vars(cls)
        for first, second in NAMES.items():
            if first in own and second in own and own[first] is not own[second]:
                raise HookTypeError(f"{cls.__name__} has {first} and {second}, which are the same thing; keep one")
            if first in own or second in own:
                method = own.get(first, own.get(second))
                setattr(cls, first, method)
                setattr(cls, second, method)

    @abstractmethod
    def before(self, arg: T) -> None:
        """What is done first."""

    @abstractmethod
    def after(self, arg: T) -> None:
        """What is done in the end."""

    def on_enter(self, arg: T) -> None:
        """Another name of `before`."""
        self.before(arg)

    def on_exit(self, arg: T) -> None:
        """Another name of `after`."""
        self.after(arg)

    @property
    def before_info(self) -> FunctionInfo | None:
        """What is called before, and where it was written."""
        return FunctionInfo(self.before)

    @property
    def after_info(self) -> FunctionInfo | None:
        """What is called after, and where it was written."""
        return FunctionInfo(self.after)

    def functions(self) -> tuple[Callable[[T], Any] | None, Callable[[T], Any] | None]:
        """What is called before and after, as directly as possible."""
        return self.before, self.after

    @contextmanager
    def begin(self, arg: T) -> Iterator[T]:
        """Surround a piece of work with this hook alone."""
        channel = HookContextChannel[T]("hook")
        channel.add(self, by_methods(self))
        with channel.around(arg):
            yield arg

    @staticmethod
    def from_callable(
        name: str | None = None,
        before: Callable[[Any], Any] | None = None,
        after: Callable[[Any], Any] | None = None,
    ) -> HookContextFromCallable[Any]:
        """A hook out of one or two functions, each of which takes the argument."""
        return HookContextFromCallable(name, before, after)

    def __repr__(self) -> str:
        content = f"name={getattr(self, 'name', None)}, \nbefore={self.before_info}, \nafter={self.after_info}"
        return f"<{class_name(type(self))}(\n{textwrap.indent(content, '  ')})>"


class HookContextFromCallable(HookContext[T]):
    """A hook out of one or two functions."""

    def __init__(
        self,
        name: str | None = None,
        before: Callable[[T], Any] | None = None,
        after: Callable[[T], Any] | None = None,
    ) -> None:
        if name is not None and not isinstance(name, str):
            raise HookTypeError(
                f"the first argument of from_callable is a name, not {FunctionInfo(name)}; "
                "write from_callable(before=...) or from_callable(after=...)"
            )
        super().__init__(name)
        for which, function in (("before", before), ("after", after)):
            if function is not None:
                _refuse_uncallable(which, function)
        self._before = before
        self._after = after

    @property
    def before_info(self) -> FunctionInfo | None:
        """What is called before, and where it was written."""
        return None if self._before is None else FunctionInfo(self._before)

    @property
    def after_info(self) -> FunctionInfo | None:
        """What is called after, and where it was written."""
        return None if self._after is None else FunctionInfo(self._after)

    def functions(self) -> tuple[Callable[[T], Any] | None, Callable[[T], Any] | None]:
        """The two functions themselves, unless a subclass does more than call them."""
        return (self._before, self._after) if type(self) is HookContextFromCallable else super().functions()

    def before(self, arg: T) -> None:
        """Call the first function, if there is one."""
        if self._before is not None:
            self._before(arg)

    def after(self, arg: T) -> None:
        """Call the second function, if there is one."""
        if self._after is not None:
            self._after(arg)


def _refuse_uncallable(which: str, function: Any) -> None:
    """Refuse what could not be called with one argument, or whose body would never run."""
    if not callable(function):
        raise HookTypeError(f"{which} is a function that takes the hook's argument, not {function!r}")
    try:
        never_runs = inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function)
        signature = inspect.signature(function)
    except Exception:  # some callables cannot say what they take, and odd ones not even what they are
        return
    if never_runs:
        raise HookTypeError(f"{which}={FunctionInfo(function)} would never run: it is a generator or a coroutine")
    try:
        signature.bind(None)
    except TypeError:
        raise HookTypeError(
            f"{which}={FunctionInfo(function)} is called with one argument, and takes {signature}"
        ) from None


class HookContextChannel(Generic[T]):
    """A place in a program that hooks are registered at, and what surrounds it with them.

        channel = HookContextChannel("on_step")
        channel.register(HookContext.from_callable(after=print))
        with channel.begin("a step"):
            ...

    Hooks may be added and taken out at any time; a passage that is under way goes through those it began with.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._scope = name if name.isidentifier() else "channel"
        #: The hooks, each with the generator that the plan has of it; empty where surrounding can be left out.
        self.entries: list[tuple[HookContext[T], Callable[..., Any]]] = []
        self._plan = Plan(self, table={}, scopes={})
        self._plan.add_scope(self._scope, ("args",), left_in_order=True, known_as=name)
        #: What surrounds one passage, called with its argument; cheaper than `begin`, and without its `as`.
        self.around: Callable[[T], AbstractContextManager[Any]] = partial(self._plan.around, self._scope)
        #: Where the passage was in which something failed, for the core's notes; numbers, which keep no batch alive.
        self.epoch = self.iter = self.rank = 0

    # -- registering

    def register(self, hook: HookContext[T]) -> RemoveableHandle[Callable[[], None]]:
        """Add a hook behind the others; one that is there already stays where it is. The handle takes it out."""
        if not isinstance(hook, HookContext):
            raise HookTypeError(f"'{self.name}' takes a HookContext, not a {type(hook).__name__}: {hook!r}")
        if not any(known is hook for known, _ in self.entries):
            own = type(hook).begin is not HookContext.begin
            self.add(hook, by_begin(hook) if own else by_methods(hook))
        return RemoveableHandle(lambda: self._discard(hook))

    def register_hook_channel(self, channel: HookContextChannel[T]) -> RemoveableHandle[Callable[[], None]]:
        """Add all hooks of a channel of the same name. The handle takes them out."""
        if channel.name != self.name:
            raise HookValueError(f"hooks of the channel '{channel.name}' cannot be registered at '{self.name}'")
        hooks = [hook for hook, _ in channel.entries]
        for hook in hooks:
            self.register(hook)

        def remove() -> None:
            for hook in hooks:
                self._discard(hook)

        return RemoveableHandle(remove)

    def add(self, hook: HookContext[T], around: Callable[..., Any]) -> None:
        """Add a hook as the generator that surrounds the channel's work."""
        self._plan.on(f"around_{self._scope}", around)
        self.entries.append((hook, around))

    def _discard(self, hook: HookContext[T]) -> None:
        for entry in self.entries:
            if entry[0] is hook:
                self._plan.remove(entry[1])
                self.entries.remove(entry)
                return

    def unregister_all(self) -> None:
        """Take all hooks out."""
        for hook, _ in list(self.entries):
            self._discard(hook)

    # -- calling

    @contextmanager
    def begin(self, arg: T) -> Iterator[T]:
        """Surround a piece of work with the hooks of this channel."""
        with self.around(arg):
            yield arg

    def failed_at(self, arg: Any) -> None:
        """Note where something failed: epoch, step of the run and process, as far as the argument has them."""
        self.epoch = int(getattr(arg, "epoch_id", 0))
        self.iter = int(getattr(arg, "global_step_id", 0))
        self.rank = int(getattr(getattr(arg, "accelerator", None), "process_index", 0))

    # -- looking

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, item: int) -> HookContext[T]:
        return self.entries[item][0]

    def __iter__(self) -> Iterator[HookContext[T]]:
        return iter([hook for hook, _ in self.entries])

    def __iadd__(self, other: HookContextChannel[T] | HookContext[T]) -> Self:
        if isinstance(other, HookContextChannel):
            self.register_hook_channel(other)
        elif isinstance(other, HookContext):
            self.register(other)
        else:
            raise HookTypeError(
                f"to the channel '{self.name}' a HookContext or a HookContextChannel can be added, "
                f"not a {type(other).__name__}"
            )
        return self

    def __repr__(self) -> str:
        hooks = ",\n".join(textwrap.indent(f"{i}: {_shown(hook)}", "  ") for i, hook in enumerate(self))
        content = f"name={self.name}, \nhooks=[" + (f"\n{hooks}\n]" if hooks else "]")
        return f"<{class_name(type(self))}(\n{textwrap.indent(content, '  ')})>"


def _shown(hook: HookContext[Any]) -> str:
    try:
        return repr(hook)
    except Exception:  # a class of the user's may say what it likes
        return f"<{class_name(type(hook))}(id={id(hook)})>"

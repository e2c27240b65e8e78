"""Hooks with a before and an after, and the channels that they are registered at.

A channel is a scope of a core plan: its hooks are compiled when they are registered, entered in registration order and
left in the same order, each of them if it was entered, whatever else fails.
"""

from __future__ import annotations

import textwrap
import weakref
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Self, TypeVar

from hookline.dialects.robo_orchard_core.refusals import HookTypeError, HookValueError
from hookline.dialects.robo_orchard_core.utils.function_info import FunctionInfo, class_name, refuse_uncallable
from hookline.dialects.robo_orchard_core.utils.handles import HookHandler, RemoveableHandle
from hookline.dialects.robo_orchard_core.utils.surround import Arounds, by_begin, by_methods, number_of
from hookline.plan.plan import Plan

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
                refuse_uncallable(which, function)
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
        """The two functions themselves, each of them unless a subclass does more than call it."""
        own = type(self)
        return (
            self._before if own.before is HookContextFromCallable.before else self.before,
            self._after if own.after is HookContextFromCallable.after else self.after,
        )

    def before(self, arg: T) -> None:
        """Call the first function, if there is one."""
        if self._before is not None:
            self._before(arg)

    def after(self, arg: T) -> None:
        """Call the second function, if there is one."""
        if self._after is not None:
            self._after(arg)


@dataclass(eq=False)
class _Link:
    """That one channel was added to another; the other one keeps it."""

    source: HookContextChannel[Any]
    taker: HookContextChannel[Any]


class HookContextChannel(Generic[T]):
    """A place in a program that hooks are registered at, and what surrounds it with them.

        channel = HookContextChannel("on_step")
        channel.register(HookContext.from_callable(after=print))
        with channel.begin("a step"):
            ...

    Hooks may be added and taken out at any time; a passage that is under way goes through those it began with. What
    comes to a channel, or goes, does so in all channels that it was added to.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._scope = name if name.isidentifier() else "channel"
        #: The hooks, each with the generators that the plan has of it; empty where surrounding can be left out.
        self.entries: list[tuple[HookContext[T], Arounds]] = []
        #: Why each hook is here, by its id: every registration, and every channel that it came with.
        self._reasons: dict[int, list[object]] = {}
        self._sources: list[_Link] = []
        self._takers: weakref.WeakSet[_Link] = weakref.WeakSet()
        self._plan = Plan(self, table={}, scopes={})
        self._plan.add_scope(self._scope, ("args",), left_in_order=True, known_as=name)
        #: What surrounds one passage, called with its argument; cheaper than `begin`, and without its `as`.
        self.around: Callable[[T], AbstractContextManager[Any]] = partial(self._plan.around, self._scope)
        #: Where the passage was in which something failed, for the core's notes; numbers, which keep no batch alive.
        self.epoch = self.iter = self.rank = 0

    # -- registering

    def register(self, hook: HookContext[T]) -> RemoveableHandle[Callable[[], None]]:
        """Add a hook behind the others; one that is there already stays where it is.

        The handle takes this registration back; with the last one, the hook goes.
        """
        if not isinstance(hook, HookContext):
            raise HookTypeError(f"'{self.name}' takes a HookContext, not a {type(hook).__name__}: {hook!r}")
        registration = object()
        self._keep(hook, registration)
        return RemoveableHandle(lambda: self._let_go(hook, registration))

    def register_hook_channel(self, channel: HookContextChannel[T]) -> RemoveableHandle[Callable[[], None]]:
        """Add all hooks of a channel of the same name, also those that it gets later. The handle takes them out."""
        if channel.name != self.name:
            raise HookValueError(f"hooks of the channel '{channel.name}' cannot be registered at '{self.name}'")
        if channel._holds(self):
            raise HookValueError(f"the channel '{self.name}' cannot be added to itself, or to one that it holds")
        link = _Link(channel, self)
        for hook in channel:
            self._keep(hook, link)
        self._sources.append(link)
        channel._takers.add(link)
        return RemoveableHandle(lambda: self._part_from(link))

    def add(self, hook: HookContext[T], arounds: Arounds) -> None:
        """Add a hook as the generators that surround the channel's work."""
        for around in arounds:
            self._plan.on(f"around_{self._scope}", around)
        self.entries.append((hook, arounds))

    def _keep(self, hook: HookContext[T], reason: object) -> None:
        """Have a hook for one more reason; a new one is passed on to the channels that this one was added to."""
        known = self._reasons.get(id(hook))
        if known is not None:
            known.append(reason)
            return
        own = type(hook).begin is not HookContext.begin
        self.add(hook, by_begin(hook) if own else by_methods(hook))
        self._reasons[id(hook)] = [reason]
        for link in list(self._takers):
            link.taker._keep(hook, link)

    def _let_go(self, hook: HookContext[T], reason: object) -> None:
        reasons = self._reasons.get(id(hook), [])
        if reason in reasons:
            reasons.remove(reason)
            if not reasons:
                self._discard(hook)

    def _discard(self, hook: HookContext[T]) -> None:
        entry = next(entry for entry in self.entries if entry[0] is hook)
        for around in entry[1]:
            self._plan.remove(around)
        self.entries.remove(entry)
        del self._reasons[id(hook)]
        for link in list(self._takers):
            link.taker._let_go(hook, link)

    def _part_from(self, link: _Link) -> None:
        if link in self._sources:
            self._sources.remove(link)
            link.source._takers.discard(link)
            for hook in link.source:
                self._let_go(hook, link)

    def _holds(self, other: HookContextChannel[T]) -> bool:
        return other is self or any(link.source._holds(other) for link in self._sources)

    def unregister_all(self) -> None:
        """Take all hooks out, and part from all channels that were added."""
        for link in list(self._sources):
            self._part_from(link)
        for hook in self:
            self._discard(hook)

    # -- calling

    @contextmanager
    def begin(self, arg: T) -> Iterator[T]:
        """Surround a piece of work with the hooks of this channel."""
        with self.around(arg):
            yield arg

    def failed_at(self, arg: Any) -> None:
        """Note where something failed: epoch, step of the run and process, as far as the argument has them."""
        self.epoch = number_of(arg, "epoch_id")
        self.iter = number_of(arg, "global_step_id")
        self.rank = number_of(arg, "accelerator.process_index")

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

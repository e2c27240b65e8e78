"""Hooks with a before and an after, and the channels at which they are registered.

A channel is a scope of a core plan. Its hooks are compiled at registration. They are entered in registration order and
left in the same order. Every hook that was entered is left, whatever else fails.
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

from hookline.dialects.errors import HookTypeError, HookValueError
from hookline.dialects.robo_orchard_core.utils.function_info import (
    FunctionInfo,
    class_name,
    refuse_idle_body,
    refuse_uncallable,
)
from hookline.dialects.robo_orchard_core.utils.handles import HookHandler, RemoveableHandle
from hookline.dialects.robo_orchard_core.utils.surround import Arounds, number_of, wrap_begin, wrap_methods
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

#: The two names of each method. The original's documents use the second ones.
NAMES = {"before": "on_enter", "after": "on_exit"}


class HookContext(Generic[T], metaclass=ABCMeta):
    """A hook that runs before and after a piece of work.

    A subclass defines `before(arg)` and `after(arg)`, or, with the same meaning, `on_enter` and `on_exit`. If a hook
    was entered, its `after` always runs. After a failure, `arg.exception` is the error, if there is such an attribute.
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = name

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        own = vars(cls)
        for first, second in NAMES.items():
            if first in own and second in own and own[first] is not own[second]:
                raise HookTypeError(f"{cls.__name__} has both {first} and {second}, which mean the same; keep one")
            if first in own or second in own:
                method = own.get(first, own.get(second))
                setattr(cls, first, method)
                setattr(cls, second, method)

    @abstractmethod
    def before(self, arg: T) -> None:
        """Run before the work."""

    @abstractmethod
    def after(self, arg: T) -> None:
        """Run after the work."""

    def on_enter(self, arg: T) -> None:
        """Call `before`; this is another name for it."""
        self.before(arg)

    def on_exit(self, arg: T) -> None:
        """Call `after`; this is another name for it."""
        self.after(arg)

    @property
    def before_info(self) -> FunctionInfo | None:
        """Return the description of the function that is called before the work; None if there is none."""
        return _info_of(self.functions()[0])

    @property
    def after_info(self) -> FunctionInfo | None:
        """Return the description of the function that is called after the work; None if there is none."""
        return _info_of(self.functions()[1])

    def functions(self) -> tuple[Callable[[T], Any] | None, Callable[[T], Any] | None]:
        """Return the functions that are called before and after the work, as directly as possible."""
        return self.before, self.after

    @contextmanager
    def begin(self, arg: T) -> Iterator[T]:
        """Wrap a piece of work with this hook alone."""
        channel = HookContextChannel[T]("hook")
        channel.add(self, wrap_methods(self))
        with channel.around(arg):
            yield arg

    @staticmethod
    def from_callable(
        name: str | None = None,
        before: Callable[[Any], Any] | None = None,
        after: Callable[[Any], Any] | None = None,
    ) -> HookContextFromCallable[Any]:
        """Create a hook from one or two functions that take the argument."""
        return HookContextFromCallable(name, before, after)

    def __repr__(self) -> str:
        content = f"name={getattr(self, 'name', None)}, \nbefore={self.before_info}, \nafter={self.after_info}"
        return f"<{class_name(type(self))}(\n{textwrap.indent(content, '  ')})>"


class HookContextFromCallable(HookContext[T]):
    """A hook that calls one or two functions."""

    def __init__(
        self,
        name: str | None = None,
        before: Callable[[T], Any] | None = None,
        after: Callable[[T], Any] | None = None,
    ) -> None:
        if name is not None and not isinstance(name, str):
            raise HookTypeError(
                f"the first argument of from_callable must be a name, not {FunctionInfo(name)}; "
                "write from_callable(before=...) or from_callable(after=...)"
            )
        super().__init__(name)
        for which, function in (("before", before), ("after", after)):
            if function is not None:
                refuse_uncallable(which, function)
        self._before = before
        self._after = after

    def functions(self) -> tuple[Callable[[T], Any] | None, Callable[[T], Any] | None]:
        """Return the two functions themselves, or the method where a subclass overrides it."""
        own = type(self)
        return (
            self._before if own.before is HookContextFromCallable.before else self.before,
            self._after if own.after is HookContextFromCallable.after else self.after,
        )

    def before(self, arg: T) -> None:
        """Call the `before` function, if there is one."""
        if self._before is not None:
            self._before(arg)

    def after(self, arg: T) -> None:
        """Call the `after` function, if there is one."""
        if self._after is not None:
            self._after(arg)


@dataclass(eq=False)
class _Link:
    """A channel, `source`, that was added to another one, `taker`. The taker owns the link."""

    source: HookContextChannel[Any]
    taker: HookContextChannel[Any]


class HookContextChannel(Generic[T]):
    """A place in a program at which hooks are registered, and which they then wrap.

        channel = HookContextChannel("on_step")
        channel.register(HookContext.from_callable(after=print))
        with channel.begin("a step"):
            ...

    Hooks can be added and removed at any time. A pass that is in progress finishes with the hooks it began with. A hook
    that is added to a channel or removed from it is also added to or removed from all channels that contain it.

    Args:
        name: The name of the channel.
        plan: The plan that calls the hooks; by default, the channel has its own.
        scope: The scope of this plan that the channel is.
    """

    def __init__(self, name: str, plan: Plan | None = None, scope: str = "") -> None:
        self.name = name
        #: The hooks, each with its generators in the plan. If it is empty, callers may skip the wrapping.
        self.entries: list[tuple[HookContext[T], Arounds]] = []
        #: The reasons for each hook, by its id: every registration, and every linked channel that contains it.
        self._reasons: dict[int, list[object]] = {}
        self._sources: list[_Link] = []
        self._takers: weakref.WeakSet[_Link] = weakref.WeakSet()
        if plan is None:
            plan, scope = Plan(self, table={}, scopes={}), name if name.isidentifier() else "channel"
            plan.add_scope(scope, ("args",), left_in_order=True, known_as=name)
        self._plan, self._scope = plan, scope
        #: Wraps one pass, called with its argument. It is cheaper than `begin`, and does not return the argument.
        self.around: Callable[[T], AbstractContextManager[Any]] = partial(plan.around, scope)
        #: The position of the pass that failed, for the core's notes. Plain numbers, so that no batch is kept alive.
        self.epoch = self.iter = self.rank = 0

    # -- registering

    def register(self, hook: HookContext[T]) -> RemoveableHandle[Callable[[], None]]:
        """Add a hook after the others. A hook that is already registered keeps its position.

        The handle removes this registration. The hook is removed with its last registration.
        """
        if not isinstance(hook, HookContext):
            raise HookTypeError(f"the channel '{self.name}' takes a HookContext, not a {type(hook).__name__}: {hook!r}")
        registration = object()
        self._add_reason(hook, registration)
        return RemoveableHandle(lambda: self._remove_reason(hook, registration))

    def register_hook_channel(self, channel: HookContextChannel[T]) -> RemoveableHandle[Callable[[], None]]:
        """Add all hooks of a channel with the same name, including later ones. The handle removes them."""
        if channel.name != self.name:
            raise HookValueError(
                f"the channel '{channel.name}' cannot be added to the channel '{self.name}': the names must match"
            )
        if channel._contains(self):
            raise HookValueError(
                f"the channel '{self.name}' cannot be added to itself, or to a channel that it contains"
            )
        link = _Link(channel, self)
        for hook in channel:
            self._add_reason(hook, link)
        self._sources.append(link)
        channel._takers.add(link)
        return RemoveableHandle(lambda: self._unlink(link))

    def add(self, hook: HookContext[T], arounds: Arounds) -> None:
        """Add a hook as generators that wrap the work of the channel."""
        for around in arounds:
            self._plan.on(f"around_{self._scope}", around)
        self.entries.append((hook, arounds))

    def _add_reason(self, hook: HookContext[T], reason: object) -> None:
        """Add one more reason for a hook. A new hook is also added to the channels that contain this one."""
        known = self._reasons.get(id(hook))
        if known is not None:
            known.append(reason)
            return
        own = type(hook).begin is not HookContext.begin
        for name, function in zip(NAMES, () if own else hook.functions(), strict=False):
            if function is not None:
                refuse_idle_body(function, f"{type(hook).__name__}.{name}: ")
        self.add(hook, wrap_begin(hook) if own else wrap_methods(hook))
        self._reasons[id(hook)] = [reason]
        for link in list(self._takers):
            link.taker._add_reason(hook, link)

    def _remove_reason(self, hook: HookContext[T], reason: object) -> None:
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
            link.taker._remove_reason(hook, link)

    def _unlink(self, link: _Link) -> None:
        if link in self._sources:
            self._sources.remove(link)
            link.source._takers.discard(link)
            for hook in link.source:
                self._remove_reason(hook, link)

    def _contains(self, other: HookContextChannel[T]) -> bool:
        return other is self or any(link.source._contains(other) for link in self._sources)

    def unregister_all(self) -> None:
        """Remove all hooks, and unlink all channels that were added."""
        for link in list(self._sources):
            self._unlink(link)
        for hook in self:
            self._discard(hook)

    # -- calling

    @contextmanager
    def begin(self, arg: T) -> Iterator[T]:
        """Wrap a piece of work with the hooks of this channel."""
        with self.around(arg):
            yield arg

    def note_failure(self, arg: Any) -> None:
        """Store the position of a failure: epoch, global step and process, as far as the argument has them."""
        self.epoch = number_of(arg, "epoch_id")
        self.iter = number_of(arg, "global_step_id")
        self.rank = number_of(arg, "accelerator.process_index")

    # -- inspecting

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
                f"only a HookContext or a HookContextChannel can be added to the channel '{self.name}', "
                f"not a {type(other).__name__}"
            )
        return self

    def __repr__(self) -> str:
        hooks = ",\n".join(textwrap.indent(f"{i}: {_format_hook(hook)}", "  ") for i, hook in enumerate(self))
        content = f"name={self.name}, \nhooks=[" + (f"\n{hooks}\n]" if hooks else "]")
        return f"<{class_name(type(self))}(\n{textwrap.indent(content, '  ')})>"


def _info_of(function: Callable[..., Any] | None) -> FunctionInfo | None:
    return None if function is None else FunctionInfo(function)


def _format_hook(hook: HookContext[Any]) -> str:
    try:
        return repr(hook)
    except Exception:  # the __repr__ of a user's class may fail
        return f"<{class_name(type(hook))}(id={id(hook)})>"

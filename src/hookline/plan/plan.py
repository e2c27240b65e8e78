"""The plan: the hooks of a run, checked, ordered, and compiled into one callable per point.

    plan = Plan(host)                    # a Runner, or anything with counters
    plan.add(EMAHook())
    plan.after_train_iter(0, batch, outputs)          # false when nobody is there, so a hot loop can ask first
    with plan.around("train_iter", 0, batch): ...

Every change makes new callables and leaves old ones as they were, so hooks may be added and removed while training: a
point under way goes through the hooks it began with.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from hookline.errors import HookError, did_you_mean, nearest
from hookline.plan.calls import NOTHING, Around, Call, PointCall, at_point, entering, frequency_of, match, read_hook
from hookline.plan.costs import Measuring, seconds_of
from hookline.plan.hook import Every, Priority
from hookline.plan.points import POINTS, SCOPES, Point, near_miss, unknown_point, user_point
from hookline.plan.registry import HOOKS

log = logging.getLogger("hookline")

# What an update goes through.
UPDATE = (
    *("around_backward", "before_backward", "after_backward"),
    *("around_optimizer_step", "before_optimizer_step", "after_optimizer_step"),
)

OnError = Literal["raise", "disable"]


@dataclass(eq=False)
class Entry:
    """A hook or a function as it was registered."""

    hook: Any
    name: str
    priority: int
    priority_from: str
    index: int
    calls: list[Call] = field(default_factory=list)
    idle: frozenset[str] = frozenset()
    #: In an open plan, methods that look like points and are none; they run when somebody names them.
    undeclared: list[str] = field(default_factory=list)
    tolerate: Callable[[Call, Exception], bool] = field(default=lambda call, error: False)
    isolated: bool = False

    @property
    def label(self) -> str:
        """`LoggerHook (priority BELOW_NORMAL (60))`, for messages."""
        return f"{self.name} (priority {Priority.label(self.priority)})"

    def checkpoint_folder(self, host: Any) -> Path | None:
        """Return the folder that the hook saves checkpoints into; None if it saves none."""
        asked = getattr(self.hook, "checkpoint_folder", None)
        return asked(host) if asked is not None else None

    def is_a(self, wanted: str | type) -> bool:
        """Whether a `runs_after` or `runs_before` means this hook."""
        if isinstance(wanted, type):
            return isinstance(self.hook, wanted)
        if wanted == self.name or wanted == getattr(self.hook, "__name__", None):
            return True
        return any(cls.__name__ == wanted for cls in type(self.hook).__mro__)


class Plan:
    """Check -> order -> compile. Binds to any host; a Runner is one."""

    def __init__(
        self,
        host: object,
        points: Mapping[str, Iterable[str]] | None = None,
        *,
        table: Mapping[str, Point] = POINTS,
        scopes: Mapping[str, Point] = SCOPES,
        open: bool = False,
    ) -> None:
        """A plan for a host.

        Args:
            host: What hooks get as their first argument.
            points: Points of one's own, besides those of the table.
            table: The points of the host's loop.
            scopes: Its scopes, by `around_<name>`.
            open: Hooks may have methods for points that nobody declared; they run when `call` names them, with what
                that call gives. What is nearly the name of a point is refused all the same.
        """
        self.host = host
        self.open = open
        self._table = table
        self.points: dict[str, Point] = dict(table)
        self.scopes: dict[str, Point] = dict(scopes)
        self._undeclared: dict[tuple[str, ...], PointCall] = {}
        self._measuring: Measuring = "none"
        self._entries: list[Entry] = []
        self._registered = 0
        for name, arguments in (points or {}).items():
            self.add_point(name, arguments)
        self._compile(self._entries)

    # -- changing the plan

    def add_point(self, name: str, arguments: Iterable[str] = ()) -> None:
        """Declare a point of one's own, before the hooks that use it."""
        if name in self.points and name not in self._table:
            raise HookError(f"the point '{name}' exists already: {self.points[name]}")
        if hasattr(Plan, name) or (name in self.__dict__ and name not in self.points):
            raise HookError(f"the point '{name}' would hide a part of the plan; choose another name, as 'after_{name}'")
        self.points[name] = user_point(name, arguments, {**self._table, **self.scopes})
        self._compile(self._entries)

    def add_scope(
        self, name: str, arguments: Iterable[str] = (), *, left_in_order: bool = False, known_as: str = ""
    ) -> None:
        """Declare a scope of one's own, entered with `around(name, ...)`; hooks surround it with `around_<name>`.

        Scopes are left in reverse, or, where that is wanted, in the order in which they were entered. Notes on errors
        call it `known_as`, if that is given.
        """
        known = self.points | self.scopes
        if f"around_{name}" in known:
            raise HookError(f"the scope '{name}' exists already: {known[f'around_{name}']}")
        scope = user_point(name, arguments, known)
        self.scopes[f"around_{name}"] = replace(
            scope, name=f"around_{name}", left_in_order=left_in_order, known_as=known_as
        )
        self._compile(self._entries)

    def add(
        self,
        hook: Any,
        priority: Any = None,
        on_error: OnError | None = None,
        priority_from: str = "argument",
        unused: Collection[str] = (),
    ) -> None:
        """Register a hook: its methods are checked, and its place in the order.

        `unused` names points whose methods do nothing in this hook: some base classes have a method for every point.
        """
        name = type(hook).__name__
        _refuse_wrong_statements(hook, name)
        if any(entry.hook is hook for entry in self._entries):
            raise HookError(f"this {name} is registered already; a hook can be in a plan once")
        role = getattr(hook, "role", "actor")
        tolerate = self._tolerance(name, role, str(on_error or getattr(hook, "on_error", "raise")))
        isolated = role == "observer" and getattr(hook, "draws_random_numbers", True)
        entry = self._entry(hook, self._unique(name), priority, priority_from)
        entry.tolerate, entry.isolated = tolerate, isolated
        found, entry.undeclared = read_hook(hook, self.points | self.scopes, self.open, unused)
        for point, method, every in found:
            passed, due = match(point, method, name, every)
            entry.calls.append(Call(entry.name, point, method, every, passed, due, tolerate, self.host, isolated))
        self._compile([*self._entries, entry])
        bind = getattr(hook, "bind", None)
        if bind is not None:
            bind(self.host)

    def on(
        self, point: str, function: Callable[..., Any], every: int | str | None = None, priority: Any = None
    ) -> None:
        """Register a function at one point, or around one scope."""
        if not isinstance(point, str):
            raise HookError(
                f"a function is registered at a point by its name, as @runner.on('after_train_iter'): {point!r}"
            )
        known = self.points | self.scopes
        if point not in known:
            raise HookError(unknown_point(point, known))
        name = getattr(function, "__name__", type(function).__name__)
        often = Every(every) if every is not None else getattr(function, "__hookline_every__", None)
        entry = self._entry(function, name, priority, "argument")
        passed, due = match(known[point], function, name, often)
        tolerate = self._tolerance(name, "actor", "raise")
        entry.calls.append(Call(name, known[point], function, often, passed, due, tolerate, self.host))
        self._compile([*self._entries, entry])

    def remove(self, hook: Any) -> None:
        """Take a hook, or a function at all its points, out of the plan."""
        kept = [entry for entry in self._entries if entry.hook is not hook]
        if len(kept) == len(self._entries):
            name = getattr(hook, "__name__", type(hook).__name__)
            names = dict.fromkeys(entry.name for entry in self._entries)
            raise HookError(f"{name} is not in the plan and cannot be removed; available: {', '.join(names) or 'none'}")
        self._compile(kept)

    def skip_idle_points(self, hook: Any = None) -> None:
        """Ask every hook at which of its points it has nothing to do in the run that starts now.

        A hook that is done before the run is has just itself asked again, and costs nothing from the next point on.
        """
        for entry in self._entries:
            if hook is None or entry.hook is hook:
                idle = getattr(entry.hook, "idle_points", None)
                entry.idle = frozenset(idle(self.host)) if idle is not None else frozenset()
        self._compile(self._entries)

    def measure(self, measuring: Measuring) -> None:
        """From the next point on, take the time of no call, of those that come once in a while, or of all."""
        compiled = self._compiled.setdefault(measuring, {})
        self._measuring = measuring
        for name in self.points:
            if name in compiled:
                self.__dict__[name] = compiled[name]
            else:
                self.__dict__.pop(name, None)  # compiled when it is next used

    def _entry(self, hook: Any, name: str, priority: Any, priority_from: str) -> Entry:
        given = priority is not None
        wanted = priority if given else getattr(hook, "priority", Priority.NORMAL)
        try:
            number = Priority.parse(wanted)
        except HookError as error:
            raise HookError(f"{name}: {error}") from None
        self._registered += 1
        return Entry(hook, name, number, priority_from if given else "class", self._registered)

    def _unique(self, name: str) -> str:
        """The class name, with a number behind it from the second hook of that class on."""
        taken = {entry.name for entry in self._entries}
        numbered = (f"{name}#{i}" for i in range(2, len(taken) + 3))
        return name if name not in taken else next(candidate for candidate in numbered if candidate not in taken)

    def _tolerance(self, name: str, role: str, on_error: str) -> Callable[[Call, Exception], bool]:
        if on_error == "raise":
            return lambda call, error: False
        if on_error != "disable":
            raise HookError(f"{name}: on_error is 'raise' or 'disable', not {on_error!r}")
        if role != "observer":
            raise HookError(
                f"{name}: on_error 'disable' is for observers (role = 'observer'); {name} acts on the run, "
                "and a run that goes on without it would be another run"
            )
        return self._disable

    def _disable(self, call: Call, error: Exception) -> bool:
        """Take a failed observer out; one warning, and the run goes on."""
        call.blame(error)
        entry = next((entry for entry in self._entries if entry.name == call.who), None)
        if entry is not None:
            log.warning("the run goes on without %s, which failed:", entry.name, exc_info=error)
            self._compile([other for other in self._entries if other is not entry])
        return True

    def _compile(self, entries: list[Entry]) -> None:
        """Order the hooks and make the callables; a plan that is refused leaves the old one in force."""
        ordered = in_order(entries)
        calls: dict[str, list[Call]] = {name: [] for name in self.points | self.scopes}
        for entry in ordered:
            for call in entry.calls:
                if call.point.name not in entry.idle:
                    calls[call.point.name].append(call)
        self._entries = ordered
        self._calls = {name: tuple(found) for name, found in calls.items()}
        self._undeclared.clear()
        for name in self.scopes:
            self.__dict__.pop(name, None)
        self._compiled: dict[Measuring, dict[str, PointCall]] = {}
        self.measure(self._measuring if self._measuring != "all" else "rare")
        #: Whether nobody is called during an update, so that it need not stop at every point.
        self.silent_update = not any(self._calls.get(name) for name in UPDATE)

    # -- calling

    def __getattr__(self, name: str) -> Any:
        """Compile a point or scope when it is first used: registering many hooks compiles each point once."""
        calls = self.__dict__.get("_calls", {})
        if name in calls and name in self.points:
            compiled = at_point(calls[name], self._measuring)
            self._compiled[self._measuring][name] = self.__dict__[name] = compiled
            return compiled
        if name in calls:
            surrounding = self.__dict__[name] = tuple((entering(call), call) for call in calls[name])
            return surrounding
        raise AttributeError(unknown_point(name, self.__dict__.get("points", POINTS)))

    def around(self, scope: str, *arguments: Any) -> AbstractContextManager[Any]:
        """Return the context manager that surrounds one passage through a scope."""
        name = f"around_{scope}"
        calls = getattr(self, name)
        return Around(calls, arguments, self.scopes[name].left_in_order, self._measuring) if calls else NOTHING

    def call(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Call a point by its name, with its arguments by name."""
        if name not in self.points:
            if not self.open:
                raise HookError(unknown_point(name, self.points))
            self._at_undeclared(name, tuple(arguments))(*arguments.values())
            return
        point = self.points[name]
        for given in arguments:
            if given not in point.arguments:
                raise HookError(f"{point} takes no argument '{given}'; {did_you_mean(given, point.arguments)}")
        missing = [wanted for wanted in point.arguments if wanted not in arguments]
        if missing:
            raise HookError(f"{point} was called without {', '.join(missing)}")
        getattr(self, name)(*(arguments[wanted] for wanted in point.arguments))

    def _at_undeclared(self, name: str, arguments: tuple[str, ...]) -> PointCall:
        """The methods of this name, as at a point that gives these arguments."""
        key = (name, *arguments)
        if key not in self._undeclared:
            if miss := near_miss(name, self.points):
                raise HookError(f"'{name}' is no point of the loop; did you mean '{miss}'?")
            point, calls = user_point(name, arguments, {}), []
            for entry in self._entries:
                method = getattr(entry.hook, name, None)
                if callable(method):
                    every = frequency_of(method)
                    passed, due = match(point, method, entry.name, every, undeclared=True)
                    shared = (entry.tolerate, self.host, entry.isolated)
                    calls.append(Call(entry.name, point, method, every, passed, due, *shared))
            self._undeclared[key] = at_point(tuple(calls))
        return self._undeclared[key]

    # -- looking

    def reset_costs(self) -> None:
        """Forget the time that was taken so far."""
        for entry in self._entries:
            for call in entry.calls:
                call.cost.seconds = 0.0

    def costs(self, iterations: int) -> dict[str, dict[str, float]]:
        """The seconds that every hook has taken at each of its points, in so many iterations since `measure`."""
        return {
            entry.name: {call.point.name: seconds_of([call], iterations) for call in entry.calls}
            for entry in self._entries
        }

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The hooks in the order in which they run."""
        return tuple(self._entries)

    def name_of(self, hook: Any) -> str:
        """What a hook is called in this plan: the name of its class, with a number from the second one on."""
        return next(entry.name for entry in self._entries if entry.hook is hook)

    def parameters_of(self, name: str) -> str:
        """The parameters of a hook as text, as far as it keeps them as plain data; empty without such a hook."""
        hook = next((entry.hook for entry in self._entries if entry.name == name), None)
        known = inspect.signature(type(hook)).parameters if hook is not None else ()
        kept = {key: getattr(hook, key, None) for key in known}
        return ", ".join(
            f"{key}={value!r}" for key, value in kept.items() if isinstance(value, (bool, int, float, str))
        )

    def calls_at(self, name: str) -> tuple[Call, ...]:
        """Who is called at a point or around a scope (`around_train_iter`), in order."""
        return self._calls[name]

    def explain(self) -> str:
        """For every point: who runs, in which order, how often, and why there."""
        from hookline.plan.explanation import explain

        return explain(self)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)


def in_order(entries: list[Entry]) -> list[Entry]:
    """By priority, then as registered; what `runs_after` and `runs_before` state moves hooks of equal priority.

    A circle of statements is refused, and a statement that the priorities contradict.
    """
    before = _statements(entries)
    ordered = sorted(entries, key=lambda entry: (entry.priority, entry.index))
    if not before:
        return ordered
    _refuse_circles(before)
    for later, earlier in before.items():
        for entry, statement in earlier.items():
            if entry.priority > later.priority:
                raise HookError(
                    f"the order of hooks contradicts itself: {statement}, but a lower number runs first: "
                    f"{entry.label}, {later.label}. Give {later.name} a priority of at least {entry.priority}, "
                    f"or {entry.name} one of at most {later.priority}."
                )
    followers: dict[Entry, list[Entry]] = {}
    for later, earlier in before.items():
        for entry in earlier:
            followers.setdefault(entry, []).append(later)
    waiting = {later: len(earlier) for later, earlier in before.items()}
    ready = [(entry.priority, entry.index, entry) for entry in ordered if entry not in waiting]  # sorted, so a heap
    placed = []
    while ready:
        _, _, entry = heappop(ready)
        placed.append(entry)
        for later in followers.get(entry, ()):
            waiting[later] -= 1
            if not waiting[later]:
                heappush(ready, (later.priority, later.index, later))
    return placed


def _statements(entries: list[Entry]) -> dict[Entry, dict[Entry, str]]:
    """Return, for each hook, which others must run before it, and which statement says so."""
    before: dict[Entry, dict[Entry, str]] = {}
    for entry in entries:
        after, ahead_of = getattr(entry.hook, "runs_after", ()), getattr(entry.hook, "runs_before", ())
        if not after and not ahead_of:
            continue
        for other in entries:
            if other is entry:
                continue
            if any(other.is_a(wanted) for wanted in after):
                before.setdefault(entry, {}).setdefault(other, f"{entry.name} states runs_after {other.name}")
            if any(other.is_a(wanted) for wanted in ahead_of):
                before.setdefault(other, {}).setdefault(entry, f"{entry.name} states runs_before {other.name}")
    return before


def _refuse_wrong_statements(hook: Any, name: str) -> None:
    """A role, or a statement about the order, that cannot be right; one about a hook that is not there may be."""
    role = getattr(hook, "role", "actor")
    if role not in ("actor", "observer"):
        raise HookError(f"{name}: the role is 'actor' or 'observer', not {role!r}")
    for statement in ("runs_after", "runs_before"):
        others = getattr(hook, statement, ())
        if isinstance(others, (str, type)):
            raise HookError(
                f"{name}: {statement} is a tuple of names or classes, as in ('LoggerHook',), not {others!r}"
            )
        for other in others:
            best = nearest(other, HOOKS, 0.85) if isinstance(other, str) and other not in HOOKS else None
            if best is not None:
                raise HookError(f"{name}: {statement} names '{other}', which is no hook; did you mean '{best}'?")


def _refuse_circles(before: Mapping[Entry, Mapping[Entry, str]]) -> None:
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        circle = error.args[1]
        statements = [before[later][earlier] for earlier, later in pairwise(circle)]
        raise HookError(f"the order of hooks goes round in a circle: {'; '.join(statements)}") from None

"""The plan: the hooks of a run, checked, ordered, and compiled into one callable per point.

    plan = Plan(host)                    # a Runner, or anything with counters
    plan.add(EMAHook())
    plan.after_train_iter(0, batch, outputs)          # false without hooks, so a hot loop can skip the call
    with plan.around("train_iter", 0, batch): ...

Every change creates new callables and leaves the old ones unchanged. Hooks can therefore be added and removed during
training: a point that is being called finishes with the hooks that it began with.
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

from hookline.common.escape import escaped
from hookline.errors import HookError, did_you_mean, nearest
from hookline.plan.calls import (
    NOTHING,
    Around,
    Call,
    PointCall,
    compile_enter,
    compile_point,
    match,
)
from hookline.plan.costs import Measuring, total_seconds
from hookline.plan.hook import Every, Priority
from hookline.plan.methods import frequency_of, method_of, read_hook
from hookline.plan.points import POINTS, SCOPES, Point, near_miss, unknown_point, user_point
from hookline.plan.registry import HOOKS

log = logging.getLogger("hookline")

# The points and scopes of an update.
UPDATE = (
    *("around_backward", "before_backward", "after_backward"),
    *("around_optimizer_step", "before_optimizer_step", "after_optimizer_step"),
)

# The points at which a hook may skip the current batch, if there are several processes.
SKIPPING = ("before_train_iter", "before_backward", "after_backward", "before_optimizer_step")

OnError = Literal["raise", "disable"]


@dataclass(eq=False)
class Entry:
    """A registered hook or function."""

    hook: Any
    name: str
    priority: int
    priority_from: str
    index: int
    calls: list[Call] = field(default_factory=list)
    idle: frozenset[str] = frozenset()
    #: The points that are idle in every process.
    idle_everywhere: frozenset[str] = frozenset()
    #: In an open plan, methods that look like points but are not declared. They run when `Plan.call` names them.
    undeclared: list[str] = field(default_factory=list)
    tolerate: Callable[[Call, Exception], bool] = field(default=lambda call, error: False)
    isolated: bool = False
    #: True if the hook runs only in the main process.
    alone: bool = False

    @property
    def label(self) -> str:
        """Return `LoggerHook (priority BELOW_NORMAL (60))`, for messages."""
        return f"{self.name} (priority {Priority.label(self.priority)})"

    def checkpoint_folder(self, host: Any) -> Path | None:
        """Return the folder that the hook saves checkpoints into; None if it saves none."""
        asked = getattr(self.hook, "checkpoint_folder", None)
        return asked(host) if asked is not None else None

    def is_a(self, wanted: str | type) -> bool:
        """Return whether an item of `runs_after` or `runs_before` refers to this hook."""
        if isinstance(wanted, type):
            return isinstance(self.hook, wanted)
        if wanted == self.name or wanted == getattr(self.hook, "__name__", None):
            return True
        return any(cls.__name__ == wanted for cls in type(self.hook).__mro__)


class Plan:
    """The hooks of a host, checked, ordered and compiled. Any host works; a Runner is one."""

    def __init__(
        self,
        host: object,
        points: Mapping[str, Iterable[str]] | None = None,
        *,
        table: Mapping[str, Point] = POINTS,
        scopes: Mapping[str, Point] = SCOPES,
        open: bool = False,
    ) -> None:
        """Create a plan for a host.

        Args:
            host: The object that hooks receive as their first argument.
            points: Custom points, besides those of the table.
            table: The points of the host's loop.
            scopes: The scopes of the host's loop, by `around_<name>`.
            open: Allow methods for points that nobody declared. They run when `call` names them, with the arguments of
                that call. A misspelled name of a declared point is still refused.
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
        """Declare a custom point. This must happen before hooks that use it are registered."""
        if name in self.points and name not in self._table:
            raise HookError(f"the point '{name}' already exists: {self.points[name]}")
        if hasattr(Plan, name) or (name in self.__dict__ and name not in self.points):
            raise HookError(
                f"the point '{name}' would hide an attribute of the plan; choose another name, such as 'after_{name}'"
            )
        self.points[name] = user_point(name, arguments, {**self._table, **self.scopes})
        self._compile(self._entries)

    def add_scope(
        self, name: str, arguments: Iterable[str] = (), *, left_in_order: bool = False, known_as: str = ""
    ) -> None:
        """Declare a custom scope. The host enters it with `around(name, ...)`; hooks surround it with `around_<name>`.

        Hooks are left in reverse, or, with `left_in_order`, in the order in which they were entered. `known_as` is the
        name to use in notes on errors.
        """
        known = self.points | self.scopes
        if f"around_{name}" in known:
            raise HookError(f"the scope '{name}' already exists: {known[f'around_{name}']}")
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
        ranks: str | None = None,
    ) -> None:
        """Register a hook. Its methods and its place in the order are checked.

        `unused` names methods to ignore, because they do nothing in this hook: some base classes have a method for
        every point. `ranks` replaces that of the hook.
        """
        name = escaped(type(hook).__name__)
        _check_declarations(hook, name)
        if any(entry.hook is hook for entry in self._entries):
            raise HookError(f"this {name} is already registered; a plan can hold a hook only once")
        role = getattr(hook, "role", "actor")
        tolerate = self._tolerance(name, role, str(on_error or getattr(hook, "on_error", "raise")))
        isolated = role == "observer" and getattr(hook, "draws_random_numbers", True)
        entry = self._entry(hook, self._unique_name(name), priority, priority_from)
        entry.tolerate, entry.isolated = tolerate, isolated
        where = ranks if ranks is not None else getattr(hook, "ranks", "all")
        if where not in ("all", "main"):
            raise HookError(f"{name}: ranks must be 'all' or 'main', not {where!r}")
        entry.alone = where == "main"
        found, entry.undeclared = read_hook(hook, self.points | self.scopes, self.open, unused)
        for point, method, every in found:
            passed, due = match(point, method, name, every)
            entry.calls.append(
                Call(entry.name, point, method, every, passed, due, tolerate, self.host, isolated, entry.alone)
            )
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
                f"a function is registered with the name of a point, as in @runner.on('after_train_iter'), "
                f"not {point!r}"
            )
        known = self.points | self.scopes
        if point not in known:
            raise HookError(unknown_point(point, known))
        name = escaped(getattr(function, "__name__", type(function).__name__))
        often = Every(every) if every is not None else getattr(function, "__hookline_every__", None)
        entry = self._entry(function, name, priority, "argument")
        passed, due = match(known[point], function, name, often)
        tolerate = self._tolerance(name, "actor", "raise")
        entry.calls.append(Call(name, known[point], function, often, passed, due, tolerate, self.host))
        self._compile([*self._entries, entry])

    def remove(self, hook: Any) -> None:
        """Remove a hook, or a function from all of its points."""
        kept = [entry for entry in self._entries if entry.hook is not hook]
        if len(kept) == len(self._entries):
            name = getattr(hook, "__name__", type(hook).__name__)
            names = dict.fromkeys(entry.name for entry in self._entries)
            raise HookError(f"{name} is not in the plan and cannot be removed; available: {', '.join(names) or 'none'}")
        self._compile(kept)

    def skip_idle_points(self, hook: Any = None) -> None:
        """Ask every hook for its idle points in the run that starts now, and skip them.

        A hook that has nothing left to do during a run can pass itself. Only this hook is asked again.
        """
        for entry in self._entries:
            if hook is None or entry.hook is hook:
                idle = getattr(entry.hook, "idle_points", None)
                entry.idle = frozenset(idle(self.host)) if idle is not None else frozenset()
                entry.idle_everywhere = entry.idle
                if entry.alone and not getattr(self.host, "strategy").is_main:  # noqa: B009  # a host may be anything
                    entry.idle = frozenset(self.points | self.scopes)
        self._compile(self._entries)

    def measure(self, measuring: Measuring) -> None:
        """Choose which calls are timed from the next point on: none, those that happen now and then, or all."""
        self._measuring = measuring
        if self._compiled:  # else it is done when a point is next used
            self._use_compiled()

    def _use_compiled(self) -> None:
        """Make every point an attribute, compiled for what is measured now."""
        if self._measuring not in self._compiled:
            self._compiled[self._measuring] = {
                name: compile_point(self._calls[name], self._measuring) for name in self.points
            }
        self.__dict__.update(self._compiled[self._measuring])

    def _entry(self, hook: Any, name: str, priority: Any, priority_from: str) -> Entry:
        given = priority is not None
        wanted = priority if given else getattr(hook, "priority", Priority.NORMAL)
        try:
            number = Priority.parse(wanted)
        except HookError as error:
            raise HookError(f"{name}: {error}") from None
        self._registered += 1
        return Entry(hook, name, number, priority_from if given else "class", self._registered)

    def _unique_name(self, name: str) -> str:
        """Return the class name, with a number from the second hook of that class on: `EMAHook#2`."""
        taken = {entry.name for entry in self._entries}
        numbered = (f"{name}#{i}" for i in range(2, len(taken) + 3))
        return name if name not in taken else next(candidate for candidate in numbered if candidate not in taken)

    def _tolerance(self, name: str, role: str, on_error: str) -> Callable[[Call, Exception], bool]:
        if on_error == "raise":
            return lambda call, error: False
        if on_error != "disable":
            raise HookError(f"{name}: on_error must be 'raise' or 'disable', not {on_error!r}")
        if role != "observer":
            raise HookError(
                f"{name}: on_error 'disable' is only for observers (role = 'observer'); {name} affects training, so a "
                "run cannot continue without it"
            )
        return self._disable

    def _disable(self, call: Call, error: Exception) -> bool:
        """Remove a failed observer with one warning, so that the run continues."""
        entry = next((entry for entry in self._entries if entry.name == call.who), None)
        if entry is not None:
            strategy = getattr(self.host, "strategy", None)
            if getattr(entry.hook, "exchanges", False) and strategy is not None and not strategy.acts_alone:
                return False  # the other processes would wait for its exchanges
            call.blame(error)
            log.warning("%s failed; the run continues without it:", entry.name, exc_info=error)
            agreeing = self.agrees_at  # the other processes still agree there
            self._compile([other for other in self._entries if other is not entry])
            self._agree_at(agreeing)
        return True

    def _compile(self, entries: list[Entry]) -> None:
        """Order the hooks and create the callables. If the order is refused, the old plan stays in force."""
        ordered = sort_entries(entries)
        calls: dict[str, list[Call]] = {name: [] for name in self.points | self.scopes}
        for entry in ordered:
            for call in entry.calls:
                if call.point.name not in entry.idle:
                    calls[call.point.name].append(call)
        self._entries = ordered
        self._calls = {name: tuple(found) for name, found in calls.items()}
        self._undeclared.clear()
        self._compiled: dict[Measuring, dict[str, PointCall]] = {}
        for name in (*self.points, *self.scopes):
            self.__dict__.pop(name, None)
        if self._measuring == "all":
            self._measuring = "rare"
        #: True if a hook that is not hookline's own runs within a pass, where it may leave gradients behind.
        self.may_leave_gradients = any(
            is_custom(call.method)
            for found in calls.values()
            for call in found
            if call.point.counts in ("iteration", "update") or call.point.name == "before_save_checkpoint"
        )
        self._agree_at(
            frozenset(
                call.point.name
                for entry in ordered
                for call in entry.calls
                if call.point.name in SKIPPING and call.point.name not in entry.idle_everywhere
                if call.point.name != "before_train_iter" or is_custom(call.method)
            )
        )

    def _agree_at(self, points: frozenset[str]) -> None:
        """Set the points after which the processes agree whether the batch is skipped: the same in all of them."""
        self.agrees_at = points
        #: True if a hook that is not hookline's own, in any process, may skip a batch before its step.
        self.may_skip_early = "before_train_iter" in points
        #: True if no hook runs during an update in any process, so that the update can skip all of its points.
        self.update_is_silent = not any(self._calls.get(name) or name in points for name in UPDATE)

    # -- calling

    def __getattr__(self, name: str) -> Any:
        """Compile the points when one is first used: registering many hooks compiles each point once."""
        calls = self.__dict__.get("_calls", {})
        if name in calls and name in self.points:
            self._use_compiled()
            return self.__dict__[name]
        if name in calls:
            surrounding = self.__dict__[name] = tuple((compile_enter(call), call) for call in calls[name])
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
            self._compile_undeclared(name, tuple(arguments))(*arguments.values())
            return
        point = self.points[name]
        for given in arguments:
            if given not in point.arguments:
                raise HookError(f"{point} has no argument '{given}'; {did_you_mean(given, point.arguments)}")
        missing = [wanted for wanted in point.arguments if wanted not in arguments]
        if missing:
            raise HookError(f"{point} was called without {', '.join(missing)}")
        getattr(self, name)(*(arguments[wanted] for wanted in point.arguments))

    def _compile_undeclared(self, name: str, arguments: tuple[str, ...]) -> PointCall:
        """Return a function that calls all methods of this name, as at a point with these arguments."""
        key = (name, *arguments)
        if key not in self._undeclared:
            if miss := near_miss(name, self.points):
                raise HookError(f"unknown point '{name}'; did you mean '{miss}'?")
            point, calls = user_point(name, arguments, {}), []
            for entry in self._entries:
                method = method_of(entry.hook, name)
                if method is not None:
                    every = frequency_of(entry.hook, name)
                    passed, due = match(point, method, entry.name, every, undeclared=True)
                    shared = (entry.tolerate, self.host, entry.isolated, entry.alone)
                    calls.append(Call(entry.name, point, method, every, passed, due, *shared))
            self._undeclared[key] = compile_point(tuple(calls))
        return self._undeclared[key]

    # -- looking

    def reset_costs(self) -> None:
        """Reset the measured times of all hooks to zero."""
        for entry in self._entries:
            for call in entry.calls:
                call.cost.seconds = 0.0

    def costs(self, iterations: int) -> dict[str, dict[str, float]]:
        """Return the seconds of every hook at each of its points, in this many iterations since `measure`."""
        return {
            entry.name: {call.point.name: total_seconds([call], iterations) for call in entry.calls}
            for entry in self._entries
        }

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Return the hooks in the order in which they run."""
        return tuple(self._entries)

    def name_of(self, hook: Any) -> str:
        """Return the name of a hook in this plan: its class name, with a number from the second one on."""
        return next(entry.name for entry in self._entries if entry.hook is hook)

    def parameters_of(self, name: str) -> str:
        """Return the plain parameters of a hook (numbers, strings, flags) as text; empty without such a hook."""
        hook = next((entry.hook for entry in self._entries if entry.name == name), None)
        known = inspect.signature(type(hook)).parameters if hook is not None else ()
        kept = {key: getattr(hook, key, None) for key in known}
        return ", ".join(
            f"{key}={value!r}" for key, value in kept.items() if isinstance(value, (bool, int, float, str))
        )

    def calls_at(self, name: str) -> tuple[Call, ...]:
        """Return the calls at a point or around a scope (`around_train_iter`), in order."""
        return self._calls[name]

    def explain(self) -> str:
        """Return a text that shows, for every point, which hooks run, in which order, how often, and why there."""
        from hookline.plan.explanation import explain

        return explain(self)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)


def sort_entries(entries: list[Entry]) -> list[Entry]:
    """Return the hooks sorted by priority, then in the order of registration.

    `runs_after` and `runs_before` move hooks of equal priority. Declarations that form a cycle, or that contradict the
    priorities, are refused.
    """
    before = _declared_order(entries)
    ordered = sorted(entries, key=lambda entry: (entry.priority, entry.index))
    if not before:
        return ordered
    _refuse_cycles(before)
    for later, earlier in before.items():
        for entry, declaration in earlier.items():
            if entry.priority > later.priority:
                raise HookError(
                    f"the order of the hooks is contradictory: {declaration}, but a lower number runs first: "
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


def _declared_order(entries: list[Entry]) -> dict[Entry, dict[Entry, str]]:
    """Return, for each hook, the hooks that must run before it, each with the declaration that requires it."""
    before: dict[Entry, dict[Entry, str]] = {}
    for entry in entries:
        after, ahead_of = getattr(entry.hook, "runs_after", ()), getattr(entry.hook, "runs_before", ())
        if not after and not ahead_of:
            continue
        for other in entries:
            if other is entry:
                continue
            if any(other.is_a(wanted) for wanted in after):
                before.setdefault(entry, {}).setdefault(other, f"{entry.name} declares runs_after {other.name}")
            if any(other.is_a(wanted) for wanted in ahead_of):
                before.setdefault(other, {}).setdefault(entry, f"{entry.name} declares runs_before {other.name}")
    return before


def is_custom(hook: Any) -> bool:
    """Return whether a hook or function is not hookline's own."""
    owner = hook if hasattr(hook, "__module__") else type(hook)
    return not str(owner.__module__).startswith("hookline.")


def _check_declarations(hook: Any, name: str) -> None:
    """Refuse an invalid `role`, `runs_after` or `runs_before`. Naming a hook that is not registered is allowed."""
    role = getattr(hook, "role", "actor")
    if role not in ("actor", "observer"):
        raise HookError(f"{name}: the role must be 'actor' or 'observer', not {role!r}")
    for declaration in ("runs_after", "runs_before"):
        others = getattr(hook, declaration, ())
        if isinstance(others, (str, type)):
            raise HookError(
                f"{name}: {declaration} must be a tuple of names or classes, as in ('LoggerHook',), not {others!r}"
            )
        for other in others:
            best = nearest(other, HOOKS, 0.85) if isinstance(other, str) and other not in HOOKS else None
            if best is not None:
                raise HookError(f"{name}: {declaration} names an unknown hook '{other}'; did you mean '{best}'?")


def _refuse_cycles(before: Mapping[Entry, Mapping[Entry, str]]) -> None:
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        cycle = error.args[1]
        declarations = [before[later][earlier] for earlier, later in pairwise(cycle)]
        raise HookError(f"the order of the hooks is circular: {'; '.join(declarations)}") from None

"""The plan: the hooks of a run, checked, ordered, and compiled into one callable per point.

    plan = Plan(host)                    # a Runner, or anything with counters
    plan.add(EMAHook())
    plan.after_train_iter(0, batch, outputs)          # false without hooks, so a hot loop can skip the call
    with plan.around("train_iter", 0, batch): ...

Every change creates new callables and leaves the old ones unchanged. Hooks can therefore be added and removed during
training: a point that is being called finishes with the hooks that it began with.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from hookline.common.escape import escaped
from hookline.errors import HookError, did_you_mean
from hookline.plan.budgets import budget_of
from hookline.plan.calls import Call, PointCall, compile_point
from hookline.plan.entry import Entry, check_declarations, is_custom, priority_of, runs_alone, tolerates
from hookline.plan.hook import Every
from hookline.plan.ledger import PART_OF_SCOPE, Ledger
from hookline.plan.methods import read_hook
from hookline.plan.modules import TRAINED, watches_of
from hookline.plan.order import Order
from hookline.plan.points import POINTS, SCOPES, Point, near_miss, unknown_point, user_point
from hookline.plan.scopes import NOTHING, Around, MeasuredScope, compile_scope

if TYPE_CHECKING:
    from hookline.common.monitor import BestCheckpoint
    from hookline.plan.costs import Measuring

log = logging.getLogger("hookline")

# The points and scopes of an update.
UPDATE = (
    *("around_backward", "before_backward", "after_backward"),
    *("around_optimizer_step", "before_optimizer_step", "after_optimizer_step"),
)

# The points at which a hook may skip the current batch, if there are several processes.
SKIPPING = ("before_train_iter", "before_backward", "after_backward", "before_optimizer_step")

# Attributes that follow from the hooks, and are computed when they are first used.
DERIVED = ("_calls", "agrees_at", "may_skip_early", "may_leave_gradients", "_is_silent", "update_is_silent")

OnError = Literal["raise", "disable"]


class Plan:
    """The hooks of a host, checked, ordered and compiled. Any host works; a Runner is one."""

    _calls: dict[str, tuple[Call, ...]]
    _is_silent: bool
    #: The points after which the processes agree whether the batch is skipped.
    agrees_at: frozenset[str]
    #: True if a hook that is not hookline's own, in any process, may skip a batch before its step.
    may_skip_early: bool
    #: True if a hook that is not hookline's own runs within a pass, where it may leave gradients behind.
    may_leave_gradients: bool
    #: True if no hook runs during an update in any process, so that the update can skip all of its points.
    update_is_silent: bool

    def __init__(
        self,
        host: object,
        points: Mapping[str, Iterable[str]] | None = None,
        *,
        table: Mapping[str, Point] = POINTS,
        scopes: Mapping[str, Point] = SCOPES,
        open: bool = False,
        budget: float | None = None,
    ) -> None:
        """Create a plan for a host.

        Args:
            host: The object that hooks receive as their first argument.
            points: Custom points, besides the points of the table.
            table: The points of the host's loop.
            scopes: The scopes of the host's loop, by `around_<name>`.
            open: Allow methods for points that nobody declared. They run when `call` names them, with the arguments of
                that call. A misspelled name of a declared point is still refused.
            budget: The budget of every observer without its own budget.
        """
        self.host = host
        self.open = open
        self._table = table
        self.points: dict[str, Point] = dict(table)
        self.scopes: dict[str, Point] = dict(scopes)
        self._undeclared: dict[tuple[str, ...], PointCall] = {}
        self.measuring: Measuring = "none"
        self._budget = budget
        self._order = Order()
        self._registered = 0
        self._compiled: dict[Measuring, dict[str, Any]] = {}
        self.ledger = Ledger(self)
        for name, arguments in (points or {}).items():
            self.add_point(name, arguments)

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
        self._forget()

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
        self._forget()

    def add(
        self,
        hook: Any,
        priority: Any = None,
        on_error: OnError | None = None,
        priority_from: str = "argument",
        unused: Collection[str] = (),
        ranks: str | None = None,
        budget: Any = None,
    ) -> None:
        """Register a hook. Its methods and its place in the order are checked.

        `unused` names methods to ignore, because they do nothing in this hook: some base classes have a method for
        every point. `ranks` and `budget` replace the values of the hook.
        """
        name = escaped(type(hook).__name__)
        check_declarations(hook, name)
        if self._order.of(hook):
            raise HookError(f"this {name} is already registered; a plan can hold a hook only once")
        entry = self._entry(hook, self._order.unique_name(name), priority, priority_from)
        if tolerates(name, entry.role, str(on_error or getattr(hook, "on_error", "raise"))):
            entry.tolerate = self._disable
        entry.isolated = entry.role == "observer" and getattr(hook, "draws_random_numbers", True)
        entry.alone = runs_alone(hook, name, ranks)
        entry.budget = budget_of(hook, name, budget, self._budget)
        found, entry.undeclared = read_hook(hook, self.points | self.scopes, self.open, unused)
        entry.calls += [entry.call_at(*each, self.host) for each in found]
        entry.watch(self, watches_of(hook, name, self.points | self.scopes))
        self._order.add(entry)
        self._forget()
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
        entry.calls.append(entry.call_at(known[point], function, often, self.host))
        self._order.add(entry)
        self._forget()

    def remove(self, hook: Any) -> None:
        """Remove a hook, or a function from all of its points."""
        removed = self._order.of(hook)
        if not removed:
            name = getattr(hook, "__name__", type(hook).__name__)
            names = dict.fromkeys(entry.name for entry in self._order)
            raise HookError(f"{name} is not in the plan and cannot be removed; available: {', '.join(names) or 'none'}")
        self._remove(removed)

    def _remove(self, removed: list[Entry]) -> None:
        for entry in removed:
            self.ledger.retire(entry)
            for watched in entry.watched:
                watched.close()
        self._order = self._order.without(removed)
        self._forget()

    def skip_idle_points(self, hook: Any = None) -> None:
        """Ask every hook for its idle points in the run that starts now, and skip them.

        A hook that has nothing left to do during a run can pass itself. Only this hook is asked again.
        """
        for entry in self._order:
            if hook is None or entry.hook is hook:
                idle = getattr(entry.hook, "idle_points", None)
                entry.idle = frozenset(idle(self.host)) if idle is not None else frozenset()
                entry.idle_everywhere = entry.idle
                if entry.alone and not getattr(self.host, "strategy").is_main:  # noqa: B009  # a host may be anything
                    entry.idle = frozenset((*self.points, *self.scopes, TRAINED))
        self._forget()

    def measure(self, measuring: Measuring) -> None:
        """Choose which calls are timed from the next point on: none, those that happen now and then, or all."""
        self.measuring = measuring
        if self._compiled:  # else it is done when a point is next used
            self._use_compiled()

    @property
    def is_sampling(self) -> bool:
        """Return whether this is a measured iteration."""
        return self.measuring == "all"

    def _use_compiled(self) -> None:
        """Make every point and scope an attribute, compiled for what is measured now."""
        measuring = self.measuring
        if measuring not in self._compiled:
            points = {name: compile_point(self._calls[name], measuring, self.ledger) for name in self.points}
            named = (*self.scopes, TRAINED)
            scopes: dict[str, Any] = {name: compile_scope(self._calls[name], measuring) for name in named}
            if self.is_sampling:
                traced = ("around_train_iter",) if self.ledger.trace is not None else ()
                scopes |= {
                    name: MeasuredScope(name, scopes[name]) for name in (*PART_OF_SCOPE, *traced) if name in scopes
                }
            # The short way of an update has no points, so nothing in it could be measured.
            silent = self._is_silent and not self.is_sampling
            self._compiled[measuring] = {**points, **scopes, "update_is_silent": silent}
        self.__dict__.update(self._compiled[measuring])

    def _entry(self, hook: Any, name: str, priority: Any, priority_from: str) -> Entry:
        self._registered += 1
        number = priority_of(hook, name, priority)
        return Entry(hook, name, number, priority_from if priority is not None else "class", self._registered)

    def _disable(self, call: Call, error: Exception) -> bool:
        """Remove a failed observer with one warning, so that the run continues."""
        entry = next((entry for entry in self._order if entry.name == call.who), None)
        if entry is not None:
            strategy = getattr(self.host, "strategy", None)
            if getattr(entry.hook, "exchanges", False) and strategy is not None and not strategy.acts_alone:
                return False  # the other processes would wait for its exchanges
            call.blame(error)
            log.warning("%s failed; the run continues without it:", entry.name, exc_info=error)
            agreeing = self.agrees_at  # the other processes still agree there
            self._remove([entry])
            self._derive()
            self._agree_at(agreeing)
        return True

    def _forget(self) -> None:
        """Forget everything derived from the hooks. It is computed when next used, so changing many costs little."""
        self._undeclared.clear()
        self._compiled = {}
        for name in (*DERIVED, TRAINED, *self.points, *self.scopes):
            self.__dict__.pop(name, None)

    def _derive(self) -> None:
        """Derive from the hooks the calls at each point, and the flags that the loop checks."""
        calls: dict[str, list[Call]] = {name: [] for name in (*self.points, *self.scopes, TRAINED)}
        for entry in self._order:
            for call in entry.calls:
                if call.point.name not in entry.idle:
                    calls[call.point.name].append(call)
                    if call.point.name == "around_forward":
                        calls[TRAINED].append(call)
        self._calls = {name: tuple(found) for name, found in calls.items()}
        self.may_leave_gradients = any(
            is_custom(call.method)
            for found in calls.values()
            for call in found
            if call.point.counts in ("iteration", "update") or call.point.name == "before_save_checkpoint"
        )
        self._agree_at(
            frozenset(
                call.point.name
                for entry in self._order
                for call in entry.calls
                if call.point.name in SKIPPING and call.point.name not in entry.idle_everywhere
                if call.point.name != "before_train_iter" or is_custom(call.method)
            )
        )

    def _agree_at(self, points: frozenset[str]) -> None:
        """Set the points after which the processes agree whether the batch is skipped: the same in all of them."""
        self.agrees_at = points
        self.may_skip_early = "before_train_iter" in points
        self._is_silent = not any(self._calls.get(name) or name in points for name in UPDATE)
        self.update_is_silent = self._is_silent and not self.is_sampling
        self._compiled = {}

    # -- calling

    def __getattr__(self, name: str) -> Any:
        """Derive and compile when it is first used: registering many hooks compiles each point once."""
        own = self.__dict__
        if name in DERIVED:
            self._derive()
            return own[name]
        if name in own.get("points", ()) or name in own.get("scopes", ()) or name == TRAINED:
            self._use_compiled()
            return own[name]
        raise AttributeError(unknown_point(name, self.__dict__.get("points", POINTS)))

    def around(self, scope: str, *arguments: Any) -> AbstractContextManager[Any]:
        """Return the context manager that surrounds one passage through a scope."""
        name = f"around_{scope}"
        calls = getattr(self, name)
        return Around(calls, arguments, self.scopes[name].left_in_order, self.ledger) if calls else NOTHING

    def around_forward_of_training(self, *arguments: Any) -> AbstractContextManager[Any]:
        """Return the context of a forward pass of training: `around_forward`, and hooks that watch modules."""
        calls = self.around_train_forward
        return Around(calls, arguments, False, self.ledger) if calls else NOTHING

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
        key = (self.measuring, name, *arguments)
        if key not in self._undeclared:
            if miss := near_miss(name, self.points):
                raise HookError(f"unknown point '{name}'; did you mean '{miss}'?")
            point = user_point(name, arguments, {})
            calls = [call for entry in self._order if (call := entry.call_undeclared(point, key[1:], self.host))]
            self._undeclared[key] = compile_point(tuple(calls), self.measuring, self.ledger)
        return self._undeclared[key]

    # -- looking

    def all_calls(self) -> Iterator[Call]:
        """Return the calls of all hooks."""
        return (call for entry in self._order for call in entry.all_calls())

    def saved_as_best(self) -> list[BestCheckpoint]:
        """Return the best saves of the hooks, in plan order."""
        return [best for entry in self._order for best in entry.saved_as_best(self.host)]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Return the hooks in the order in which they run."""
        return tuple(self._order)

    def name_of(self, hook: Any) -> str:
        """Return the name of a hook in this plan: its class name, with a number from the second one on."""
        return self.entry_of(hook).name

    def entry_of(self, hook: Any) -> Entry:
        """Return the entry of a hook in this plan."""
        return min(self._order.of(hook), key=lambda entry: (entry.priority, entry.index))

    def parameters_of(self, name: str) -> str:
        """Return the plain parameters of a hook (numbers, strings, flags) as text; empty without such a hook."""
        return next((entry.parameters_text for entry in self._order if entry.name == name), "")

    def calls_at(self, name: str) -> tuple[Call, ...]:
        """Return the calls at a point or around a scope (`around_train_iter`), in order."""
        return self._calls[name]

    def named(self, wanted: str | type) -> list[Entry]:
        """Return the hooks that an item of `runs_after` or `runs_before` refers to."""
        return self._order.called(wanted)

    def explain(self) -> str:
        """Return a text that shows, for every point, which hooks run, in which order, how often, and why there."""
        from hookline.plan.explanation import explain

        return explain(self)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._order)

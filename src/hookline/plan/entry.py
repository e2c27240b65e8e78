"""Entry: a registered hook or function, with its place in the order and its calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.errors import HookError, nearest
from hookline.plan.calls import Call, PointCall, WatchCall, compile_point
from hookline.plan.hook import Priority
from hookline.plan.matching import match
from hookline.plan.methods import frequency_of, method_of
from hookline.plan.modules import Watch, Watched
from hookline.plan.registry import HOOKS

if TYPE_CHECKING:
    from hookline.common.monitor import BestCheckpoint
    from hookline.common.watching import Seen
    from hookline.plan.hook import Every
    from hookline.plan.plan import Plan
    from hookline.plan.points import Point


def raises(call: Call, error: Exception) -> bool:
    """Tolerate no error of a hook."""
    return False


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
    tolerate: Callable[[Call, Exception], bool] = raises
    isolated: bool = False
    #: True if the hook runs only in the main process.
    alone: bool = False
    #: The parameters that the hook was built with; None if the user built it.
    given: Mapping[str, Any] | None = None
    #: The share of the training time that the hook may take.
    budget: float | None = None
    #: Its calls at points that nobody declared, by the point and its arguments.
    undeclared_calls: dict[tuple[str, ...], Call] = field(default_factory=dict)
    #: The modules that the hook watches.
    watched: list[WatchedModules] = field(default_factory=list)

    @property
    def label(self) -> str:
        """Return `LoggerHook (priority BELOW_NORMAL (60))`, for messages."""
        return f"{self.name} (priority {Priority.label(self.priority)})"

    @property
    def role(self) -> str:
        """Return `actor` or `observer`."""
        return str(getattr(self.hook, "role", "actor"))

    def all_calls(self) -> Iterator[Call]:
        """Return the calls of the hook at all points."""
        yield from self.calls
        yield from self.undeclared_calls.values()
        yield from (watched.call for watched in self.watched)

    def probe(self, probe: Callable[[Call], AbstractContextManager[None]]) -> None:
        """Look at the run around every call of the hook. This must happen before the run begins."""
        self.calls = [replace(call, probe=probe) for call in self.calls]
        for watched in self.watched:
            watched.call = replace(watched.call, probe=probe)

    def checkpoint_folder(self, host: Any) -> Path | None:
        """Return the folder that the hook saves checkpoints into; None if it saves none."""
        asked = getattr(self.hook, "checkpoint_folder", None)
        return asked(host) if asked is not None else None

    @property
    def saves_only_trained(self) -> bool:
        """Return whether the hook saves checkpoints that leave out weights that training does not change."""
        return getattr(self.hook, "checkpoint_folder", None) is not None and (
            getattr(self.hook, "params", "all") == "trainable"
        )

    def saved_as_best(self, host: Any) -> Iterable[BestCheckpoint]:
        """Return the best saves of the hook, by metric."""
        asked = getattr(self.hook, "saved_as_best", None)
        return asked(host) if asked is not None else ()

    @property
    def parameters_text(self) -> str:
        """Return the plain parameters of the hook (numbers, strings, flags) as text."""
        kept = {key: getattr(self.hook, key, None) for key in inspect.signature(type(self.hook)).parameters}
        return ", ".join(
            f"{key}={value!r}" for key, value in kept.items() if isinstance(value, (bool, int, float, str))
        )

    def call_at(
        self, point: Point, method: Callable[..., Any], every: Every | None, host: object, **given: Any
    ) -> Call:
        """Return the call of a method at a point. A method that does not fit the point is refused."""
        passed, due = match(point, method, self.name, every, **given)
        shared = (self.tolerate, host, self.isolated, self.alone)
        return Call(self.name, point, method, every, passed, due, *shared)

    def watch(self, plan: Plan, watches: Iterable[Watch]) -> None:
        """Let methods of the hook watch modules."""
        self.watched = [WatchedModules(plan, self, watch) for watch in watches]
        self.calls += [watched.install for watched in self.watched]

    def call_undeclared(self, point: Point, key: tuple[str, ...], host: object) -> Call | None:
        """Return the call at a point that nobody declared; None if the hook has no method of this name."""
        method = method_of(self.hook, point.name)
        if method is not None and key not in self.undeclared_calls:
            every = frequency_of(self.hook, point.name)
            self.undeclared_calls[key] = self.call_at(point, method, every, host, undeclared=True)
        return None if method is None else self.undeclared_calls[key]


class WatchedModules(Watched):
    """The modules that a method of a hook watches, and its calls."""

    def __init__(self, plan: Plan, entry: Entry, watch: Watch) -> None:
        super().__init__(watch, entry.name, plan.scopes.get("around_forward"))
        passed, _ = match(self.point, watch.method, entry.name, None)
        given = (self.every, passed, self.due, entry.tolerate, plan.host, entry.isolated, entry.alone)
        #: The call of the method, and the call around a forward pass of training, which installs the hooks of torch.
        self.call = WatchCall(entry.name, self.point, watch.method, *given)
        self.install = Call(
            entry.name, self.scope, self.around, self.every, "hl_host", self.due, entry.tolerate, plan.host
        )
        self._plan = plan
        self._compiled: dict[tuple[str, bool], PointCall] = {}

    def see(self, seen: Seen) -> None:
        """Call the method as at a point: measured, and with a note on every error."""
        plan = self._plan
        if not self.is_watching(plan.host):
            return
        key = (plan.measuring, plan.ledger.trace is not None)
        if key not in self._compiled:
            self._compiled[key] = compile_point((self.call,), plan.measuring, plan.ledger)
        self.call.seeing.append(seen)
        try:
            self._compiled[key](*seen)
        finally:
            self.call.seeing.pop()


def priority_of(hook: Any, name: str, given: Any) -> int:
    """Return the priority of a hook as a number: the given one, or else the priority of its class."""
    try:
        return Priority.parse(given if given is not None else getattr(hook, "priority", Priority.NORMAL))
    except HookError as error:
        raise HookError(f"{name}: {error}") from None


def tolerates(name: str, role: str, on_error: str) -> bool:
    """Return whether the run continues without the hook if it fails. Refuse this for a hook that affects training."""
    if on_error == "raise":
        return False
    if on_error != "disable":
        raise HookError(f"{name}: on_error must be 'raise' or 'disable', not {on_error!r}")
    if role != "observer":
        raise HookError(
            f"{name}: on_error 'disable' is only for observers (role = 'observer'); {name} affects training, so a "
            "run cannot continue without it"
        )
    return True


def runs_alone(hook: Any, name: str, ranks: str | None) -> bool:
    """Return whether a hook runs only in the main process: as requested, or else as its class says."""
    where = ranks if ranks is not None else getattr(hook, "ranks", "all")
    if where not in ("all", "main"):
        raise HookError(f"{name}: ranks must be 'all' or 'main', not {where!r}")
    return bool(where == "main")


def is_custom(hook: Any) -> bool:
    """Return whether a hook or function is not hookline's own."""
    owner = hook if hasattr(hook, "__module__") else type(hook)
    return not str(owner.__module__).startswith("hookline.")


def check_declarations(hook: Any, name: str) -> None:
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

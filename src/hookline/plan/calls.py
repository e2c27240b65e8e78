"""Calls of hooks at points: what happens when one fails, and how a point becomes one function.

- `hookline.plan.methods` finds the methods of a hook.
- `hookline.plan.matching` works out, once, which of a point's arguments a method takes and when the method is due.
- `compile_point` compiles a point into one function that calls its methods in order.
- `hookline.plan.scopes` enters and leaves the generators around a scope.
- `hookline.plan.callers` finds the call in progress.
"""

from __future__ import annotations

import hashlib
import inspect
import linecache
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from types import CodeType
from typing import TYPE_CHECKING, Any

from hookline.common import forks
from hookline.errors import HookError, blame
from hookline.plan.costs import Cost, Measuring
from hookline.plan.matching import ENDS_EPOCH, counter_source, returns_something
from hookline.plan.scopes import NOTHING
from hookline.plan.sources import source_of

if TYPE_CHECKING:
    from hookline.common.watching import Seen
    from hookline.plan.hook import Every
    from hookline.plan.ledger import Ledger
    from hookline.plan.points import Point

# The counters in a note on an error.
COUNTERS = ("epoch", "iter", "rank")


@dataclass(frozen=True, eq=False)
class Call:
    """One method of one hook at one point."""

    who: str
    point: Point
    method: Callable[..., Any]
    every: Every | None
    #: The arguments of the call, and the condition for when it is due, as source text over the point's arguments.
    passed: str
    due: str
    # Called when the method has raised. True swallows the error; only observers with `on_error: disable` return it.
    tolerate: Callable[[Call, Exception], bool]
    host: object
    #: True if the random generators are restored after the call, because an observer must not change the run.
    isolated: bool = False
    #: True if the hook runs only in the main process, so that an exchange with the others would never end.
    alone: bool = False
    cost: Cost = field(default_factory=Cost)
    #: The context in which `hookline verify` looks at the run, around the method and its other context.
    probe: Callable[[Call], AbstractContextManager[None]] | None = None

    @property
    def is_frequent(self) -> bool:
        """Return whether the method runs in every iteration, so that timing each call would slow down training."""
        return self.point.counts in ("iteration", "update") and not self.due

    @property
    def counter(self) -> str:
        """Return the counter of its frequency as source text; empty if it has none."""
        return "" if self.every is None else counter_source(self.point, self.every)

    def is_timed(self, measuring: Measuring) -> bool:
        """Return whether its calls are timed in this mode."""
        return measuring == "all" or (measuring == "rare" and not self.is_frequent)

    @property
    def where(self) -> str:
        """Return file:line of the method."""
        return source_of(self.method)

    def blame(self, error: BaseException) -> None:
        """Add a note to the error: which hook failed, at which point and with which counters.

        An error that a hook has only noticed, and that says itself where it began, has no such note.
        """
        if getattr(error, "is_placed", False):
            return
        blame(error, f"in hook {self.who}, at {self.place}, {counters_of(self.host)} ({self.where})")

    @property
    def place(self) -> str:
        """Return the point, as users know it."""
        return self.point.known_as or self.point.name

    def shield(self) -> AbstractContextManager[None]:
        """Return the context to call the method in."""
        if self.probe is not None:
            return self._probed(self.probe)
        if self.alone:
            return self._alone()
        if not self.isolated:
            return NOTHING
        from hookline.common.rng import preserved  # it imports torch, which `hookline plan` does not need

        return preserved()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        host: Any = self.host
        with host.strategy.alone(f"hook {self.who}"), replace(self, alone=False).shield():
            yield

    @contextmanager
    def _probed(self, probe: Callable[[Call], AbstractContextManager[None]]) -> Iterator[None]:
        with probe(self), replace(self, probe=None).shield():
            yield

    @property
    def is_shielded(self) -> bool:
        """Return whether the method is called in a context."""
        return self.isolated or self.alone or self.probe is not None

    def survives(self, error: BaseException) -> bool:
        """Return whether the run continues although this method raised. If not, add a note to the error."""
        forks.end_if_copy(self.host, error)
        if isinstance(error, Exception) and self.tolerate(self, error):
            return True
        self.blame(error)
        return False


@dataclass(frozen=True, eq=False)
class WatchCall(Call):
    """The call of a method that watches modules."""

    #: What the method sees now: one entry at most.
    seeing: list[Seen] = field(default_factory=list)

    @property
    def place(self) -> str:
        """Return the pass and the module."""
        if not self.seeing:
            return super().place
        seen = self.seeing[-1]
        module = f"module '{seen.name}'" if seen.name else "the model"
        return f"the {seen.kind} pass of {module} ({type(seen.module).__name__}, call {seen.call})"


def counters_of(host: object) -> str:
    """Return the counters of a run for a note on an error. A host can name other ones in `noted_counters`."""
    names = getattr(host, "noted_counters", COUNTERS)
    return " ".join(f"{name}={getattr(host, name, 0)}" for name in names)


def blame_step(error: BaseException, host: object, what: str = "the step") -> None:
    """Add a note with the counters to an error from a user's step, unless the note of a hook already has them."""
    forks.end_if_copy(host, error)
    counters = counters_of(host)
    if not any(counters in note for note in getattr(error, "__notes__", ())):
        blame(error, f"in {what}, {counters}")


class NoHooks(tuple[()]):
    """A point without hooks. It is false, so a hot loop can skip the call."""

    def __call__(self, *arguments: Any) -> None:
        """Do nothing."""


NO_HOOKS = NoHooks()

PointCall = Callable[..., None] | NoHooks


def compile_point(calls: tuple[Call, ...], measuring: Measuring = "none", ledger: Ledger | None = None) -> PointCall:
    """Return one function for a point. It calls the methods in plan order and names the hook in every error.

    It is compiled from text, so a step costs only plain calls, without matching names. The real text has the prefix
    `hl_` on every name below, so that none of them can clash with an argument:

        def after_train_iter(batch_idx, data_batch, outputs):
            n = 0
            try:
                method0(host, outputs=outputs)
                n = 1
                if (host.iter + 1) % 10 == 0: method1(host)
            except BaseException as error:
                if not calls[n].survives(error): raise
                n += 1
            else:
                return
            compile_point(calls[n:])(batch_idx, data_batch, outputs)

    Neighbors with intervals share one test: while none of them is due, they cost nothing more, however many they are.
    After each passage in which one may have been due, `low` and `high` say which counts can be left out next:

        if not low <= host.iter + 1 < high:
            if (host.iter + 1) % 10 == 0: method1(host)
            if (host.iter + 1) % 25 == 0: method2(host)
            low, high = host.iter + 2, next_due(host.iter + 1, (10, 25))

    A timed call is surrounded by two readings of the clock, and `ledger.end` adds the difference to its cost:

        outer, ledger.inside, began = ledger.inside, 0.0, clock()
        method0(host, outputs=outputs)
        ledger.end(calls[0].cost, outer, began)
    """
    if not calls:
        return NO_HOOKS
    point = calls[0].point
    arguments = ", ".join(point.arguments)
    traced = ledger is not None and ledger.trace is not None and any(call.is_timed(measuring) for call in calls)
    lines = [f"def {point.name}({arguments}):", " hl_n = 0", *[" hl_entered = hl_clock()"] * traced, " try:"]
    state: dict[str, Any] = {}
    for group in _groups(calls):
        body: list[str] = []
        for number, call in group:
            source = [f"{f'with hl_calls[{number}].shield(): ' * call.is_shielded}hl_method{number}({call.passed})"]
            if ledger is not None and call.is_timed(measuring):
                source = _timed_source(source, number, traced)
            body += [f"hl_n = {number}"] * (number > 0)
            body += [f"if {call.due}:", *_indented(source)] if call.due else source
        lines += _indented(_guarded(body, [call for _, call in group], state), 2)
    if state:
        lines.insert(1, f" global {', '.join(state)}")
    lines += [" except BaseException as hl_error:", "  if not hl_calls[hl_n].survives(hl_error): raise", "  hl_n += 1"]
    lines += [" else:", *[f"  hl_ledger.trace.add_point({point.name!r}, hl_entered)"] * traced, "  return"]
    lines += [f" hl_compile_point(hl_calls[hl_n:], {measuring!r}, hl_ledger)({arguments})"]
    names: dict[str, Any] = {f"hl_method{number}": call.method for number, call in enumerate(calls)}
    for number, call in enumerate(calls):
        if returns_something(call.method):
            names[f"hl_method{number}"] = _checked_once(call, names, f"hl_method{number}")
    names |= {"hl_host": calls[0].host, "hl_calls": calls, "hl_clock": time.perf_counter}
    names |= {"hl_compile_point": compile_point, "hl_ledger": ledger, "hl_next_due": next_due}
    names |= state
    exec(compile_text("\n".join(lines) + "\n", point.name), names)
    compiled: PointCall = names[point.name]
    return compiled


def _checked_once(call: Call, names: dict[str, Any], name: str) -> Callable[..., Any]:
    """Return the method of a call for its first time: it refuses a result whose body nobody would run.

    It then puts the method itself in its place, so that later calls cost nothing more.
    """

    def first(*arguments: Any, **named: Any) -> None:
        result = call.method(*arguments, **named)
        if inspect.iscoroutine(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
            if not inspect.isasyncgen(result):
                result.close()
            raise HookError(
                f"{call.who}.{call.point.name} ({call.where}) returned a {type(result).__name__}, whose body nobody "
                "runs; write a plain method, or name a method with a yield around_<scope>"
            )
        names[name] = call.method

    return first


def _indented(lines: Iterable[str], by: int = 1) -> list[str]:
    return [" " * by + line for line in lines]


def _groups(calls: tuple[Call, ...]) -> Iterator[list[tuple[int, Call]]]:
    """Yield neighbors that count the same as one group, and each other call as a separate group, with their numbers."""
    for counter, group in groupby(enumerate(calls), key=lambda numbered: numbered[1].counter):
        if counter:
            yield list(group)
        else:
            yield from ([each] for each in group)


def _guarded(body: list[str], calls: list[Call], state: dict[str, Any]) -> list[str]:
    """Return the lines of several calls, behind one test of whether any of them may be due.

    Names whose values have to last until the next passage are added to `state`.
    """
    if len(calls) == 1:
        return body
    counter = calls[0].counter
    if counter == ENDS_EPOCH:
        return [f"if {counter}:", *_indented(body)]
    intervals = tuple(sorted({call.every.n for call in calls if call.every is not None}))
    low, high = f"hl_low{len(state)}", f"hl_high{len(state)}"
    state |= {low: 0, high: 0}
    then = f"{low}, {high} = {counter} + 2, hl_next_due({counter} + 1, {intervals!r})"
    return [f"if not {low} <= {counter} + 1 < {high}:", *_indented([*body, then])]


def next_due(count: int, intervals: tuple[int, ...]) -> int:
    """Return the first count after this one that is a multiple of an interval.

    >>> next_due(20, (10, 25)), next_due(24, (10, 25))
    (25, 25)
    """
    return min(count - count % interval + interval for interval in intervals)


def _timed_source(body: list[str], number: int, traced: bool) -> list[str]:
    """Return the lines of a call that is timed."""
    cost = f"hl_calls[{number}].cost"
    after = [f"hl_ledger.trace.add_call(hl_calls[{number}], hl_began)"] * traced
    begin = "hl_outer, hl_ledger.inside, hl_began = hl_ledger.inside, 0.0, hl_clock()"
    return [begin, *body, f"hl_ledger.end({cost}, hl_outer, hl_began)", *after]


@lru_cache(maxsize=100)  # for many hooks, compiling takes long, and the text is often the same in all modes
def compile_text(text: str, name: str) -> CodeType:
    """Compile generated source, and add it to `linecache`, so that tracebacks and pdb can show it.

    The same text always has the same file name, so recompiling a plan does not fill the cache.
    """
    file = f"<hookline {name} {hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:8]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return compile(text, file, "exec")

"""Calls of hooks: every rule of a call is in this file. `hookline.plan.methods` finds the methods to call.

- `match` works out, once, which of a point's arguments a method takes and when the method is due.
- `compile_point` compiles a point into one function that calls its methods in order.
- `Around` enters a scope's generators in order and leaves them in reverse.
"""

from __future__ import annotations

import hashlib
import inspect
import linecache
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import groupby
from types import CodeType, FrameType, GeneratorType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from hookline.common import forks
from hookline.common.memory import resident
from hookline.errors import HookError, blame, did_you_mean, nearest
from hookline.plan.costs import Cost, Measuring

if TYPE_CHECKING:
    from hookline.plan.hook import Every
    from hookline.plan.ledger import Ledger
    from hookline.plan.points import Point

# A first parameter with a default receives the runner only if it has one of these names, or nearly.
RUNNER = ("runner", "trainer")

# The counters in a note on an error.
COUNTERS = ("epoch", "iter", "rank")

# Whether the current iteration is the last one of its epoch, as source text.
ENDS_EPOCH = "hl_host.ends_epoch"
# The counters of points, by what they count, as source text. A counter counts what is finished.
COUNTERS_OF = {
    "iteration": "hl_host.iter",
    "epoch": "hl_host.epoch",
    "batch": "batch_idx",
    "validation": "hl_host.validations",
    "update": "hl_host.current_updates",
}

# The context of a scope that no hook surrounds.
NOTHING = nullcontext()
# Returned by `next` for a generator that has ended.
ENDED = object()


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

    @property
    def is_frequent(self) -> bool:
        """Return whether the method runs in every iteration, so that timing each call would slow down training."""
        return self.point.counts in ("iteration", "update") and not self.due

    @property
    def counter(self) -> str:
        """Return the source text of what its frequency counts; empty if it has none."""
        return "" if self.every is None else counter_source(self.point, self.every)

    def is_timed(self, measuring: Measuring) -> bool:
        """Return whether its calls are timed in this mode."""
        return measuring in ("all", "memory") or (measuring == "rare" and not self.is_frequent)

    def is_sized(self, measuring: Measuring) -> bool:
        """Return whether the memory is read around its calls in this mode. That takes longer than reading the clock."""
        return measuring == "memory" or (measuring != "none" and self.point.counts in (None, "epoch", "validation"))

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
        at = self.point.known_as or self.point.name
        blame(error, f"in hook {self.who}, at {at}, {counters_of(self.host)} ({self.where})")

    def shield(self) -> AbstractContextManager[None]:
        """Return the context to call the method in."""
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

    @property
    def is_shielded(self) -> bool:
        """Return whether the method is called in a context."""
        return self.isolated or self.alone

    def survives(self, error: BaseException) -> bool:
        """Return whether the run continues although this method raised. If not, add a note to the error."""
        forks.end_if_copy(self.host, error)
        if isinstance(error, Exception) and self.tolerate(self, error):
            return True
        self.blame(error)
        return False


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
                source = _timed_source(source, number, call.is_sized(measuring), traced)
            body += [f"hl_n = {number}"] * (number > 0)
            body += [f"if {call.due}:", *_indented(source)] if call.due else source
        lines += _indented(_guarded(body, [call for _, call in group], state), 2)
    if state:
        lines.insert(1, f" global {', '.join(state)}")
    lines += [" except BaseException as hl_error:", "  if not hl_calls[hl_n].survives(hl_error): raise", "  hl_n += 1"]
    lines += [" else:", *[f"  hl_ledger.trace.add_point({point.name!r}, hl_entered)"] * traced, "  return"]
    lines += [f" hl_compile_point(hl_calls[hl_n:], {measuring!r}, hl_ledger)({arguments})"]
    names: dict[str, Any] = {f"hl_method{number}": call.method for number, call in enumerate(calls)}
    names |= {"hl_host": calls[0].host, "hl_calls": calls, "hl_clock": time.perf_counter}
    names |= {"hl_compile_point": compile_point, "hl_ledger": ledger, "hl_resident": resident, "hl_next_due": next_due}
    names |= state
    exec(compile_text("\n".join(lines) + "\n", point.name), names)
    compiled: PointCall = names[point.name]
    return compiled


def _indented(lines: Iterable[str], by: int = 1) -> list[str]:
    return [" " * by + line for line in lines]


def _groups(calls: tuple[Call, ...]) -> Iterator[list[tuple[int, Call]]]:
    """Yield neighbors that count the same, and each other call by itself, with their numbers."""
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


def _timed_source(body: list[str], number: int, sized: bool, traced: bool) -> list[str]:
    """Return the lines of a call that is timed, and around which the memory is read if it is `sized`."""
    cost = f"hl_calls[{number}].cost"
    before = ["hl_size = hl_resident()"] * sized
    after = [f"{cost}.grow(hl_resident() - hl_size)"] * sized
    after += [f"hl_ledger.trace.add_call(hl_calls[{number}], hl_began)"] * traced
    begin = "hl_outer, hl_ledger.inside, hl_began = hl_ledger.inside, 0.0, hl_clock()"
    return [*before, begin, *body, f"hl_ledger.end({cost}, hl_outer, hl_began)", *after]


@lru_cache(maxsize=100)  # for many hooks, compiling takes long, and the text is often the same in all modes
def compile_text(text: str, name: str) -> CodeType:
    """Compile generated source, and add it to `linecache`, so that tracebacks and pdb can show it.

    The same text always has the same file name, so recompiling a plan does not fill the cache.
    """
    file = f"<hookline {name} {hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:8]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return compile(text, file, "exec")


def failing_call(error: BaseException, point: str) -> Call | None:
    """Return the call at a point that raised an error, by its traceback; None if it was raised elsewhere."""
    found, trace = None, error.__traceback__
    while trace is not None:
        call = call_of_frame(trace.tb_frame)
        if call is not None and call.point.name == point:
            found = call
        trace = trace.tb_next
    return found


def call_in_progress(host: object) -> Call | None:
    """Return the hook call of this host that is running now in this thread; None outside of hooks.

    It is read from the stack: a compiled point and `Around` know which call they are making, so recording each call is
    not necessary. Another thread acts for the user's hook that is running in the thread of the loop, if there is one:
    such a hook usually has started it and waits for it.
    """
    found = _call_in_stack(sys._getframe(1), host)
    if found is not None:
        return found
    others = (_call_in_stack(frame, host) for frame in sys._current_frames().values())
    return next((call for call in others if call is not None and not _is_ours(call.method)), None)


def _is_ours(method: Callable[..., Any]) -> bool:
    return str(getattr(method, "__module__", "")).startswith("hookline.")


def _call_in_stack(frame: FrameType | None, host: object) -> Call | None:
    while frame is not None:
        call = call_of_frame(frame)
        if call is not None and call.host is host:
            return call
        frame = frame.f_back
    return None


def call_of_frame(frame: FrameType) -> Call | None:
    """Return the call that a frame is making; None unless it is a frame of a compiled point or of `Around`."""
    if "hl_calls" in frame.f_globals and "hl_n" in frame.f_code.co_varnames:
        calls: tuple[Call, ...] = frame.f_globals["hl_calls"]
        number = frame.f_locals.get("hl_n", 0)
        return calls[number] if number < len(calls) else None
    if frame.f_code in (Around.__enter__.__code__, Around._leave.__code__):
        found: Call | None = frame.f_locals.get("call")
        return found
    return None


class MeasuredScope(tuple[Any, ...]):
    """The calls around a scope whose body is measured, as a part of a step. It is true even without calls."""

    def __new__(cls, scope: str, calls: tuple[Surrounding, ...]) -> MeasuredScope:
        """Create it for a scope, by its name."""
        made = super().__new__(cls, calls)
        made.scope = scope
        return made

    scope: str

    def __bool__(self) -> bool:
        """Return True: the scope has to be entered."""
        return True


@dataclass(eq=False, slots=True)
class Passage:
    """What one generator took in one passage through a scope, when it was entered and when it was left."""

    #: True if the memory is read as well.
    sized: bool
    seconds: float = 0.0
    grown: int = 0


class Surrounding(NamedTuple):
    """One generator around a scope: the function that creates it, and what of it is measured."""

    enter: Callable[..., Any]
    call: Call
    timed: bool
    sized: bool
    #: True if it is entered and left without a context, because it is neither measured nor shielded.
    plain: bool


class Around:
    """One passage through a scope: generators are entered in plan order and left in reverse, or in order if requested.

    Every generator that was entered is left, even when the body raised: then its exception is thrown into each of
    them. No generator can swallow it. One that raises while it is left neither stops the others nor hides the first
    error.
    """

    __slots__ = ("arguments", "calls", "entered", "in_order", "ledger", "part")

    def __init__(
        self,
        calls: tuple[Surrounding, ...],
        arguments: tuple[Any, ...],
        in_order: bool,
        ledger: Ledger,
    ) -> None:
        self.calls = calls
        self.arguments = arguments
        self.in_order = in_order
        self.ledger = ledger
        self.entered: list[tuple[Iterator[None], Call, Passage | None, bool]] = []
        #: Where the measuring of the body began, if it is a part of a step.
        self.part: tuple[float, float] | None = None

    def __enter__(self) -> None:
        try:
            for enter, call, timed, sized, plain in self.calls:  # `call` is read from the frame: `call_of_frame`
                passage = Passage(sized) if timed else None
                try:
                    generator = enter(*self.arguments)
                    if generator is None:  # not due: every=
                        continue
                    if generator.__class__ is not GeneratorType and not hasattr(generator, "throw"):
                        raise HookError(
                            f"{call.who}.{call.point.name} ({call.where}) must be a plain generator function with one "
                            f"yield, but it returned a {type(generator).__name__}; remove @contextmanager if it has one"
                        )
                    if plain:  # an empty context would cost more than the rest
                        reached = next(generator, ENDED)
                    else:
                        with self._surrounded(call, passage):
                            reached = next(generator, ENDED)
                    if reached is ENDED:
                        raise HookError(f"{call.who}.{call.point.name} ({call.where}) ended without a yield")
                except BaseException as error:
                    if call.survives(error):
                        continue
                    raise
                self.entered.append((generator, call, passage, plain))
        except BaseException as error:
            self._leave(error)
            raise
        if self.calls.__class__ is MeasuredScope:
            self.part = self.ledger.begin_scope()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.part is not None:
            self.ledger.end_scope(self.calls.scope, *self.part)  # type: ignore[attr-defined]  # a MeasuredScope
        first = self._leave(error)
        if first is not None and first is not error:
            raise first

    def _surrounded(self, call: Call, passage: Passage | None, last: bool = False) -> AbstractContextManager[None]:
        """Return the context to enter and leave a generator in."""
        return call.shield() if passage is None else self.ledger.timed(call, passage, last)

    def _leave(self, error: BaseException | None) -> BaseException | None:
        while self.entered:
            generator, call, passage, plain = self.entered.pop(0 if self.in_order else -1)
            trace = error.__traceback__ if error is not None else None
            try:
                if plain and error is None:
                    if next(generator, ENDED) is ENDED:
                        continue
                else:
                    with self._surrounded(call, passage, last=True):
                        if error is None:
                            next(generator)
                        else:
                            generator.throw(error)  # type: ignore[attr-defined]  # registration allows only generators
                generator.close()  # type: ignore[attr-defined]
                raise HookError(f"{call.who}.{call.point.name} ({call.where}) has more than one yield")
            except StopIteration:
                pass
            except BaseException as raised:
                passed_on = raised is error or _is_wrapped(raised, error)
                if not passed_on and not call.survives(raised):
                    if error is None:
                        error = raised
                        continue
                    blame(error, f"while leaving the scope, {call.who} raised {type(raised).__name__}: {raised}")
            if error is not None:
                error.__traceback__ = trace  # without the frames of the generator, where it did not happen
        return error


def _is_wrapped(raised: BaseException, error: BaseException | None) -> bool:
    """Return whether `raised` is the RuntimeError that a generator makes of the body's StopIteration."""
    return isinstance(error, StopIteration) and isinstance(raised, RuntimeError) and raised.__cause__ is error


def compile_scope(calls: tuple[Call, ...], measuring: Measuring = "none") -> tuple[Surrounding, ...]:
    """Return the generators around a scope, in plan order."""
    return tuple(
        Surrounding(
            *(compile_enter(call), call, call.is_timed(measuring), call.is_sized(measuring)),
            plain=not call.is_timed(measuring) and not call.is_shielded,
        )
        for call in calls
    )


def compile_enter(call: Call) -> Callable[..., Any]:
    """Return a function that creates the generator of an around_ hook, or returns None when it is not due."""
    due = f" if {call.due} else None" if call.due else ""
    code = f"lambda {', '.join(call.point.arguments)}: hl_method({call.passed}){due}"
    compiled: Callable[..., Any] = eval(code, {"hl_method": call.method, "hl_host": call.host})
    return compiled


@dataclass(frozen=True)
class Place:
    """A method at a point, for messages. Finding its file takes longer than checking it, so only a message does."""

    point: Point
    method: Callable[..., Any]
    who: str

    def __str__(self) -> str:
        own = self.who == getattr(self.method, "__name__", "")
        name = f"{self.who} at {self.point.name}" if own else f"{self.who}.{self.point.name}"
        return f"{name} ({source_of(self.method)})"


def match(
    point: Point, method: Callable[..., Any], who: str, every: Every | None, undeclared: bool = False
) -> tuple[str, str]:
    """Return the arguments of a method at its point, and the condition for when it is due, as source text.

    A method that does not fit its point is refused. At a point that nobody declared, a method need not take the runner.
    """
    place = Place(point, method, who)
    if point.name.startswith("around_") and not inspect.isgeneratorfunction(function_of(method)):
        raise HookError(f"{place}: an around_ hook must be a generator function with one yield, but this one has none")
    if not point.name.startswith("around_") and never_runs(method):
        raise HookError(
            f"{place}: its body would never run, because it is a generator or a coroutine; write a plain "
            "method, or name a method with a yield around_<scope>"
        )
    passed = _passed_source(point, method, place, undeclared)
    return ", ".join(passed), due_source(point, every, place) if every is not None else ""


def _passed_source(point: Point, method: Callable[..., Any], place: Place, undeclared: bool) -> list[str]:
    """Return the arguments of the call, as source text."""
    given = {name: f"hl_host.{name}" if name in point.live else name for name in point.arguments}
    try:
        parameters = list(inspect.signature(method).parameters.values())
    except (TypeError, ValueError):  # written in C, without a signature
        raise HookError(f"{place}: its parameters cannot be read; call it from a method") from None
    passed = []
    if parameters and parameters[0].kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
        first = parameters[0]
        if first.name in given and not undeclared:
            right = ", ".join(("runner", *(p.name for p in parameters)))
            raise HookError(
                f"{place}: its first parameter receives the runner, but '{first.name}' is an argument of the point; "
                f"write ({right})"
            )
        if first.name not in given and (
            first.default is inspect.Parameter.empty or nearest(first.name, (*RUNNER, *given)) in RUNNER
        ):
            parameters.pop(0)
            passed.append("hl_host")
    named = [p.name for p in parameters]
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            passed += [f"{name}={value}" for name, value in given.items() if name not in named]
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL or _keeps_default(parameter, given, named):
            continue
        elif parameter.name not in given:
            hint = did_you_mean(parameter.name, given) if given else "its only argument is the runner"
            raise HookError(f"{place}: {point} has no argument '{parameter.name}'; {hint}")
        elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise HookError(
                f"{place}: '{parameter.name}' is positional-only, so it cannot be passed by name; move it after the '/'"
            )
        else:
            passed.append(f"{parameter.name}={given[parameter.name]}")
    return passed


def _keeps_default(parameter: inspect.Parameter, given: Mapping[str, str], named: list[str]) -> bool:
    """Return whether a parameter that the point does not provide keeps its default.

    If its name is near that of an argument that the method does not take, it is probably misspelled.
    """
    if parameter.name in given or parameter.default is inspect.Parameter.empty:
        return False
    return nearest(parameter.name, (name for name in given if name not in named)) is None


def never_runs(method: Callable[..., Any]) -> bool:
    """Return whether a plain call would not run the body, because it is a generator or a coroutine."""
    function = function_of(method)
    return inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function)


def function_of(method: Callable[..., Any]) -> Any:
    """Return the function behind a method, a decorated function, or an object that can be called."""
    inner = inspect.unwrap(method)
    while isinstance(inner, partial):
        inner = inspect.unwrap(inner.func)
    return inner if inspect.isroutine(inner) else type(inner).__call__


def due_source(point: Point, every: Every, place: object) -> str:
    """Return the condition for when a call is due, as source text.

    Counters count what is finished, so the current iteration or epoch is the counter + 1.
    """
    if point.counts is None:
        raise HookError(
            f"{place}: {every} is not allowed at {point.name}: only points that count iterations, epochs, validations "
            "or optimizer steps take a frequency"
        )
    counter = counter_source(point, every)
    if counter == ENDS_EPOCH:
        return f"{ENDS_EPOCH} and (hl_host.epoch + 1) % {every.n} == 0"
    if every.by_epoch and point.counts in ("batch", "validation"):  # validation happens after its epoch was counted
        return f"hl_host.epoch % {every.n} == 0"
    return f"({counter} + 1) % {every.n} == 0"


def counter_source(point: Point, every: Every) -> str:
    """Return the counter that a frequency is about, as source text; that of an epoch, if an iteration has to end it."""
    if every.by_epoch:
        return {"epoch": "hl_host.epoch", "batch": "", "validation": ""}.get(str(point.counts), ENDS_EPOCH)
    return COUNTERS_OF[str(point.counts)]


def source_of(function: object) -> str:
    """Return file:line of a function or method, or the type of a callable that has no source.

    A function that only calls another one may name that one in its `__hookline_source__`.
    """
    function = getattr(function, "__hookline_source__", function)
    inner = inspect.unwrap(function) if callable(function) else function
    while isinstance(inner, partial):
        inner = inspect.unwrap(inner.func)
    inner = getattr(inner, "__func__", inner)
    code = getattr(inner, "__code__", None)
    if code is None:
        return f"{type(inner).__module__}.{type(inner).__qualname__}, no source"
    return f"{short_path(code.co_filename)}:{code.co_firstlineno}"


def short_path(path: str) -> str:
    """Return a short path for people: relative, if it is inside hookline or the working directory."""
    package, found, rest = path.rpartition(f"{os.sep}hookline{os.sep}")
    if found and os.path.isfile(os.path.join(package, "hookline", "plan", "points.py")):
        return os.path.join("hookline", rest)
    try:
        inside = os.path.isabs(path) and os.path.commonpath([path, os.getcwd()]) == os.getcwd()
    except (OSError, ValueError):  # the working directory was deleted, or is on another drive
        inside = False
    return os.path.relpath(path) if inside else path

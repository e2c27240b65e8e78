"""How a hook is called: every rule of a call is in this file.

`read_hook` finds the methods of a hook and refuses those that cannot be right. `match` finds out, once, which of a
point's arguments a method takes and when it is due. `at_point` compiles a point: one function that calls its methods in
order. `Around` enters a scope's generators in order and leaves them in reverse.
"""

from __future__ import annotations

import hashlib
import inspect
import linecache
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import CodeType, FrameType, TracebackType
from typing import Any

from hookline.errors import HookError, blame, did_you_mean, nearest
from hookline.plan.costs import Cost, Measuring
from hookline.plan.hook import LOOKED_UP, Every, Hook
from hookline.plan.points import PREFIXES, Point, near_miss, unknown_point

# A public method with none of the prefixes is taken for a misspelt point only when it is this close to one.
CLOSE = 0.88
# An attribute is taken for a misspelled one that hookline looks up only when it is this close.
ALMOST = 0.9

# What a note on an error says of where a run stands.
COUNTERS = ("epoch", "iter", "rank")

# The scope that nobody surrounds.
NOTHING = nullcontext()
# What comes out of a generator that has no more to do.
ENDED = object()


@dataclass(frozen=True, eq=False)
class Call:
    """One method of one hook at one point."""

    who: str
    point: Point
    method: Callable[..., Any]
    every: Every | None
    #: What the method is called with, and when it is due, as source text over the point's arguments.
    passed: str
    due: str
    # Asked when the method raised; True swallows the error. Only observers with `on_error: disable` have one.
    tolerate: Callable[[Call, Exception], bool]
    host: object
    #: Whether the random generators are put back after it: an observer must not change the run.
    isolated: bool = False
    cost: Cost = field(default_factory=Cost)

    @property
    def comes_often(self) -> bool:
        """Whether it is called in every iteration, so that reading the clock each time would be felt."""
        return self.point.counts in ("iteration", "update") and not self.due

    def is_timed(self, measuring: Measuring) -> bool:
        """Whether the time of its calls is taken now."""
        return measuring == "all" or (measuring == "rare" and not self.comes_often)

    @property
    def where(self) -> str:
        """file:line of the method."""
        return source_of(self.method)

    def blame(self, error: BaseException) -> None:
        """Note on the error which hook failed, at which point and at which counters."""
        at = self.point.known_as or self.point.name
        blame(error, f"in hook {self.who}, at {at}, {counters_of(self.host)} ({self.where})")

    def shield(self) -> AbstractContextManager[None]:
        """What to call it in."""
        if not self.isolated:
            return NOTHING
        from hookline.common.rng import preserved  # it needs torch, and a plan is explained without

        return preserved()

    def failed(self, error: BaseException) -> bool:
        """Whether the run goes on although this method raised."""
        if isinstance(error, Exception) and self.tolerate(self, error):
            return True
        self.blame(error)
        return False


def counters_of(host: object) -> str:
    """Where a run stands, for a note on an error; a host that counts otherwise names its own as `noted_counters`."""
    names = getattr(host, "noted_counters", COUNTERS)
    return " ".join(f"{name}={getattr(host, name, 0)}" for name in names)


def blame_step(error: BaseException, host: object, what: str = "the step") -> None:
    """Note on an error out of a user's step at which counters it was, unless the note of a hook says so already."""
    counters = counters_of(host)
    if not any(counters in note for note in getattr(error, "__notes__", ())):
        blame(error, f"in {what}, {counters}")


class NoHooks(tuple[()]):
    """A point that nobody is called at: false, so that a hot loop need not even call it."""

    def __call__(self, *arguments: Any) -> None:
        """Nothing."""


NO_HOOKS = NoHooks()

PointCall = Callable[..., None] | NoHooks


def at_point(calls: tuple[Call, ...], measuring: Measuring = "none") -> PointCall:
    """One function for a point: its methods in plan order, each failure with its hook's name on it.

    It is compiled from text, so that a step pays for plain calls and not for matching names (without the prefix `hl_`,
    which keeps the names apart from those of arguments):

        def after_train_iter(batch_idx, data_batch, outputs):
            n = 0
            try:
                method0(host, outputs=outputs)
                n = 1
                if (host.iter + 1) % 10 == 0: method1(host)
            except BaseException as error:
                if not calls[n].failed(error): raise
                n += 1
            else: return
            at_point(calls[n:])(batch_idx, data_batch, outputs)

    Where its time is taken, a call stands between two readings of the clock.
    """
    if not calls:
        return NO_HOOKS
    point = calls[0].point
    arguments = ", ".join(point.arguments)
    lines = [f"def {point.name}({arguments}):", " hl_n = 0", " try:"]
    for number, call in enumerate(calls):
        shield = f"with hl_calls[{number}].shield(): " if call.isolated else ""
        lines += [f"  hl_n = {number}"] * (number > 0) + [f"  if {call.due}:"] * bool(call.due)
        body = [f"{shield}hl_method{number}({call.passed})"]
        if call.is_timed(measuring):
            body = ["hl_began = hl_clock()", *body, f"hl_calls[{number}].cost.seconds += hl_clock() - hl_began"]
        lines += [("   " if call.due else "  ") + line for line in body]
    lines += [" except BaseException as hl_error:", "  if not hl_calls[hl_n].failed(hl_error): raise", "  hl_n += 1"]
    lines += [" else: return", f" hl_at_point(hl_calls[hl_n:], {measuring!r})({arguments})"]
    names: dict[str, Any] = {f"hl_method{number}": call.method for number, call in enumerate(calls)}
    names |= {"hl_host": calls[0].host, "hl_calls": calls, "hl_at_point": at_point, "hl_clock": time.perf_counter}
    exec(compile_text(lines, point.name), names)
    compiled: PointCall = names[point.name]
    return compiled


def compile_text(lines: list[str], name: str) -> CodeType:
    """Compile generated source, and keep it in `linecache`, so that tracebacks and pdb can show it.

    The same text always has the same file name, so recompiling a plan does not fill the cache.
    """
    text = "\n".join(lines) + "\n"
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
    """Return the hook call of this host that is running now in this thread; None outside of any.

    A compiled point and `Around` know which call they are making, so nothing has to be recorded per call.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        call = call_of_frame(frame)
        if call is not None and call.host is host:
            return call
        frame = frame.f_back
    return None


def call_of_frame(frame: FrameType) -> Call | None:
    """Return the call that a frame is making, if it is one of a compiled point or of `Around`."""
    if "hl_calls" in frame.f_globals and "hl_n" in frame.f_code.co_varnames:
        calls: tuple[Call, ...] = frame.f_globals["hl_calls"]
        number = frame.f_locals.get("hl_n", 0)
        return calls[number] if number < len(calls) else None
    if frame.f_code in (Around._enter.__code__, Around._leave.__code__):
        found: Call | None = frame.f_locals.get("call")
        return found
    return None


class Around:
    """One passage through a scope: generators entered in plan order, left in reverse (or, if asked, in order too).

    Only those that were entered are left, and each of them always is, with the body's exception thrown in. None can
    swallow it. One that raises on the way out neither stops the others nor hides the first error.
    """

    __slots__ = ("arguments", "calls", "entered", "in_order", "measuring")

    def __init__(
        self,
        calls: tuple[tuple[Callable[..., Any], Call], ...],
        arguments: tuple[Any, ...],
        in_order: bool = False,
        measuring: Measuring = "none",
    ) -> None:
        self.calls = calls
        self.arguments = arguments
        self.measuring = measuring
        self.in_order = in_order
        self.entered: list[tuple[Iterator[None], Call]] = []

    def __enter__(self) -> None:
        try:
            for enter, call in self.calls:
                self._enter(enter, call)
        except BaseException as error:
            self._leave(error)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        first = self._leave(error)
        if first is not None and first is not error:
            raise first

    def _enter(self, enter: Callable[..., Any], call: Call) -> None:
        try:
            generator = enter(*self.arguments)
            if generator is None:  # not due: every=
                return
            if not hasattr(generator, "throw"):
                raise HookError(
                    f"{call.who}.{call.point.name} ({call.where}) must be a plain generator function with one yield, "
                    f"and gave a {type(generator).__name__}; leave a @contextmanager away"
                )
            if self.measuring == "none" and not call.isolated:  # a context would take longer than all the rest
                reached = next(generator, ENDED)
            else:
                with self._surrounding(call):
                    reached = next(generator, ENDED)
            if reached is ENDED:
                raise HookError(f"{call.who}.{call.point.name} ({call.where}) ended without a yield")
        except BaseException as error:
            if call.failed(error):
                return
            raise
        self.entered.append((generator, call))

    def _surrounding(self, call: Call) -> AbstractContextManager[None]:
        """What a generator is entered and left in."""
        return taking_time(call) if call.is_timed(self.measuring) else call.shield()

    def _leave(self, error: BaseException | None) -> BaseException | None:
        while self.entered:
            generator, call = self.entered.pop(0 if self.in_order else -1)
            trace = error.__traceback__ if error is not None else None
            try:
                if error is None and self.measuring == "none" and not call.isolated:
                    if next(generator, ENDED) is ENDED:
                        continue
                else:
                    with self._surrounding(call):
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
                if not passed_on and not call.failed(raised):
                    if error is None:
                        error = raised
                        continue
                    blame(error, f"on the way out, {call.who} raised {type(raised).__name__}: {raised}")
            if error is not None:
                error.__traceback__ = trace  # the way through the generator is not where it happened
        return error


def _is_wrapped(raised: BaseException, error: BaseException | None) -> bool:
    """Whether it is a StopIteration of the body, which comes out of a generator as the cause of a RuntimeError."""
    return isinstance(error, StopIteration) and isinstance(raised, RuntimeError) and raised.__cause__ is error


@contextmanager
def taking_time(call: Call) -> Iterator[None]:
    """Add the time that this takes to the cost of the call."""
    began = time.perf_counter()
    try:
        with call.shield():
            yield
    finally:
        call.cost.seconds += time.perf_counter() - began


def entering(call: Call) -> Callable[..., Any]:
    """A function that makes the generator of an around_ hook, or gives None when it is not due."""
    due = f" if {call.due} else None" if call.due else ""
    code = f"lambda {', '.join(call.point.arguments)}: hl_method({call.passed}){due}"
    made: Callable[..., Any] = eval(code, {"hl_method": call.method, "hl_host": call.host})
    return made


def read_hook(
    hook: object, points: dict[str, Point], open_plan: bool = False, unused: Collection[str] = ()
) -> tuple[list[tuple[Point, Callable[..., Any], Every | None]], list[str]]:
    """The methods of a hook that stand at points, in the order of the points; a misspelt one is refused.

    In an open plan, a method may be for a point that nobody declared; these come second, by name. Methods named in
    `unused` are left alone.
    """
    cls = type(hook)
    found, undeclared = {}, []
    for name in dir(cls):
        static = inspect.getattr_static(cls, name)
        if (
            name.startswith("_")
            or name in unused
            or name in vars(Hook)
            or getattr(static, "__hookline_helper__", False)
        ):
            continue
        if not open_plan and name not in points:
            refuse_near_miss(cls, name)
        if not (callable(static) or isinstance(static, (staticmethod, classmethod))):
            continue
        if name in points:
            found[name] = getattr(hook, name)
        elif open_plan and not near_miss(name, points):
            undeclared += [name] * name.startswith(PREFIXES)
        elif name.startswith(PREFIXES) or nearest(name, points, CLOSE):
            where = source_of(getattr(hook, name))
            raise HookError(
                f"{cls.__name__}.{name} ({where}): {unknown_point(name, points)} "
                "Mark a helper that must keep such a name with @not_a_point."
            )
    often = {name: Every(given) for name, given in hook.how_often().items()} if hasattr(hook, "how_often") else {}
    present = [name for name in points if name in found]
    return [(points[name], found[name], often.get(name, frequency_of(found[name]))) for name in present], undeclared


def refuse_near_miss(cls: type, name: str) -> None:
    """Refuse an attribute that is nearly one that hookline looks up in a hook: it would silently do nothing."""
    best = nearest(name, LOOKED_UP, ALMOST)
    if best is not None:
        raise HookError(
            f"{cls.__name__}.{name}: hookline does not look this up in a hook, so it would do nothing; did you mean "
            f"'{best}'? Mark a helper that must keep such a name with @not_a_point."
        )


def frequency_of(method: Callable[..., Any]) -> Every | None:
    """How often a method is to run, where `@every` says so."""
    return getattr(method, "__hookline_every__", None)


def match(
    point: Point, method: Callable[..., Any], who: str, every: Every | None, undeclared: bool = False
) -> tuple[str, str]:
    """What a method is called with at its point and when it is due, as source text; a wrong one is refused.

    At a point that nobody declared, a parameter behind the first that it does not give may keep its default, and a
    method may take the arguments alone, without the runner before them.
    """
    place = f"{who}.{point.name}" if who != getattr(method, "__name__", "") else f"{who} at {point.name}"
    place = f"{place} ({source_of(method)})"
    if point.name.startswith("around_") and not inspect.isgeneratorfunction(inspect.unwrap(method)):
        raise HookError(f"{place}: an around_ hook is a generator function with one yield; there is none in it")
    if not point.name.startswith("around_") and (
        inspect.isgeneratorfunction(inspect.unwrap(method)) or inspect.iscoroutinefunction(inspect.unwrap(method))
    ):
        raise HookError(
            f"{place}: its body would never run, because it is a generator or a coroutine; write a plain "
            "method, or around_<scope> for one with a yield"
        )
    passed = _passed(point, method, place, undeclared)
    return ", ".join(passed), _due(point, every, place) if every is not None else ""


def _passed(point: Point, method: Callable[..., Any], place: str, undeclared: bool) -> list[str]:
    """The arguments of the call, as source text."""
    given = {name: f"hl_host.{name}" if name in point.live else name for name in point.arguments}
    parameters = list(inspect.signature(method).parameters.values())
    passed = []
    if parameters and parameters[0].kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
        first = parameters[0].name
        if first not in given:
            parameters.pop(0)
            passed.append("hl_host")
        elif not undeclared:
            right = ", ".join(("runner", *(p.name for p in parameters)))
            raise HookError(
                f"{place}: its first parameter takes the runner, but '{first}' is an argument of the point; "
                f"write ({right})"
            )
    named = [p.name for p in parameters]
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            passed += [f"{name}={value}" for name, value in given.items() if name not in named]
        elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise HookError(f"{place}: '{parameter.name}' cannot be given by name; move it behind the '/'")
        elif parameter.kind is not inspect.Parameter.VAR_POSITIONAL:
            if parameter.name not in given:
                if undeclared and parameter.default is not inspect.Parameter.empty:
                    continue
                hint = did_you_mean(parameter.name, given) if given else "it gives nothing besides the runner."
                raise HookError(f"{place}: {point} gives no argument '{parameter.name}'; {hint}")
            passed.append(f"{parameter.name}={given[parameter.name]}")
    return passed


def _due(point: Point, every: Every, place: str) -> str:
    """Whether it is this call's turn, as source text; counters count what is finished, so the current one is + 1."""
    if point.counts is None:
        raise HookError(f"{place}: {every} makes no sense at {point.name}, which does not come again and again")
    evaluating = point.counts in ("batch", "validation")
    if every.by_epoch:
        if evaluating:  # a validation comes after its epoch was counted
            return f"hl_host.epoch % {every.n} == 0"
        last = "" if point.counts == "epoch" else "hl_host.ends_epoch and "
        return f"{last}(hl_host.epoch + 1) % {every.n} == 0"
    current = {
        "iteration": "hl_host.iter",
        "epoch": "hl_host.epoch",
        "batch": "batch_idx",
        "validation": "hl_host.validations",
        "update": "hl_host.current_updates",
    }[point.counts]
    return f"({current} + 1) % {every.n} == 0"


def source_of(function: object) -> str:
    """file:line of a function or method, or what else can be said of a callable that has no source.

    A function that was made to call another one may name that one as its `__hookline_source__`.
    """
    function = getattr(function, "__hookline_source__", function)
    inner = inspect.unwrap(function) if callable(function) else function
    inner = getattr(inner, "__func__", inner)
    code = getattr(inner, "__code__", None)
    if code is None:
        return f"{type(inner).__module__}.{type(inner).__qualname__}, no source"
    return f"{short_path(code.co_filename)}:{code.co_firstlineno}"


def short_path(path: str) -> str:
    """A path for people: inside hookline or the working directory, from there on."""
    package, found, rest = path.rpartition(f"{os.sep}hookline{os.sep}")
    if found and os.path.isfile(os.path.join(package, "hookline", "plan", "points.py")):
        return os.path.join("hookline", rest)
    try:
        inside = os.path.isabs(path) and os.path.commonpath([path, os.getcwd()]) == os.getcwd()
    except (OSError, ValueError):  # a working directory that is gone, or another drive
        inside = False
    return os.path.relpath(path) if inside else path

"""Matching a method with its point: which of the point's arguments it takes, and when it is due.

This happens once, at registration. The results are source text, which a compiled point contains. A method that does not
fit its point is refused here. `hookline.plan.methods` finds the methods.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from types import CodeType
from typing import TYPE_CHECKING, Any

from hookline.errors import HookError, did_you_mean, nearest
from hookline.plan.known_elsewhere import ARGUMENTS_ELSEWHERE
from hookline.plan.sources import source_of

if TYPE_CHECKING:
    from hookline.plan.hook import Every
    from hookline.plan.points import Point

# A first parameter with a default receives the runner only if it has one of these names, or nearly.
RUNNER = ("runner", "trainer")

# A flag, as source text: the current iteration is the last one of its epoch.
ENDS_EPOCH = "hl_host.ends_epoch"
# The counters of points, by what they count, as source text. A counter counts what is finished.
COUNTERS_OF = {
    "iteration": "hl_host.iter",
    "epoch": "hl_host.epoch",
    "batch": "batch_idx",
    "validation": "hl_host.validations",
    "update": "hl_host.current_updates",
}


@dataclass(frozen=True)
class Place:
    """A method at a point, for messages. Finding its file takes longer than checking it, so only a message does."""

    point: Point
    method: Callable[..., Any]
    who: str

    def __str__(self) -> str:
        own = self.who == getattr(self.method, "__name__", "")
        point = self.point.known_as or self.point.name
        name = f"{self.who} at {point}" if own else f"{self.who}.{point}"
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
            right = ", ".join(("runner", *(ARGUMENTS_ELSEWHERE.get(p.name, p.name) for p in parameters)))
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
            raise HookError(f"{place}: {point} has no argument '{parameter.name}'; {_hint(parameter.name, given)}")
        elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise HookError(
                f"{place}: '{parameter.name}' is positional-only, so it cannot be passed by name; move it after the '/'"
            )
        else:
            passed.append(f"{parameter.name}={given[parameter.name]}")
    return passed


def _hint(name: str, given: Mapping[str, str]) -> str:
    """Return the end of the message about an argument that the point does not provide."""
    meant = ARGUMENTS_ELSEWHERE.get(name)
    if meant in given:
        return f"did you mean '{meant}'?"
    return did_you_mean(name, given) if given else "its only argument is the runner"


def _keeps_default(parameter: inspect.Parameter, given: Mapping[str, str], named: list[str]) -> bool:
    """Return whether a parameter that the point does not provide keeps its default.

    If its name is near the name of an argument that the method does not take, it is probably misspelled.
    """
    if parameter.name in given or parameter.default is inspect.Parameter.empty:
        return False
    return nearest(parameter.name, (name for name in given if name not in named)) is None


def never_runs(method: Callable[..., Any]) -> bool:
    """Return whether a plain call would not run the body, because it is a generator or a coroutine."""
    function = function_of(method)
    kinds = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    return any(is_kind(function) for is_kind in kinds)


def returns_something(method: Callable[..., Any]) -> bool:
    """Return whether a method may return anything but None, as far as its bytecode shows."""
    code = getattr(method, "__code__", None)
    return not isinstance(code, CodeType) or _returns_something(code)


@lru_cache(maxsize=10_000)
def _returns_something(code: CodeType) -> bool:
    before = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "RETURN_CONST" and instruction.argval is not None:
            return True
        is_none = before is not None and before.opname == "LOAD_CONST" and before.argval is None
        if instruction.opname == "RETURN_VALUE" and not is_none:
            return True
        before = instruction
    return False


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
    """Return the counter of a frequency as source text: the epoch's, if an iteration has to end the epoch."""
    if every.by_epoch:
        return {"epoch": "hl_host.epoch", "batch": "", "validation": ""}.get(str(point.counts), ENDS_EPOCH)
    return COUNTERS_OF[str(point.counts)]

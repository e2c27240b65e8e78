"""Hooks around a scope: their generators are entered in order and left in reverse, also under exceptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import GeneratorType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from hookline.errors import HookError, blame, described

if TYPE_CHECKING:
    from hookline.plan.calls import Call
    from hookline.plan.costs import Measuring
    from hookline.plan.ledger import Ledger

# The context of a scope that no hook surrounds.
NOTHING = nullcontext()
# Returned by `next` for a generator that has ended.
ENDED = object()


class MeasuredScope(tuple[Any, ...]):
    """The calls around a scope whose body is measured, as a part of a step. It is true even without calls."""

    def __new__(cls, scope: str, calls: tuple[Surrounding, ...]) -> MeasuredScope:
        """Create the calls around a scope, given by its name."""
        made = super().__new__(cls, calls)
        made.scope = scope
        return made

    scope: str

    def __bool__(self) -> bool:
        """Return True: the scope has to be entered."""
        return True


class DueScope(tuple[Any, ...]):
    """The calls around a scope that all have a frequency. It is false while none is due: then the scope is skipped."""

    def __new__(cls, calls: tuple[Surrounding, ...], is_due: Callable[[], bool]) -> DueScope:
        """Create the calls around a scope."""
        made = super().__new__(cls, calls)
        made.is_due = is_due
        return made

    is_due: Callable[[], bool]

    def __bool__(self) -> bool:
        """Return whether any call is due."""
        return self.is_due()


@dataclass(eq=False, slots=True)
class Passage:
    """The cost of one generator in one passage through a scope: of entering it and of leaving it."""

    seconds: float = 0.0


class Surrounding(NamedTuple):
    """One generator around a scope: the function that creates it, and what of it is measured."""

    enter: Callable[..., Any]
    call: Call
    timed: bool
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
            for enter, call, timed, plain in self.calls:  # `call` is read from the frame: `call_of_frame`
                passage = Passage() if timed else None
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
                    blame(error, f"while leaving the scope, {call.who} raised {described(raised)}")
            if error is not None:
                error.__traceback__ = trace  # without the frames of the generator, where it did not happen
        return error


def _is_wrapped(raised: BaseException, error: BaseException | None) -> bool:
    """Return whether `raised` is the RuntimeError that a generator makes of the body's StopIteration."""
    return isinstance(error, StopIteration) and isinstance(raised, RuntimeError) and raised.__cause__ is error


def compile_scope(calls: tuple[Call, ...], measuring: Measuring = "none") -> tuple[Surrounding, ...]:
    """Return the generators around a scope, in plan order."""
    compiled = tuple(
        Surrounding(
            *(compile_enter(call), call, call.is_timed(measuring)),
            plain=not call.is_timed(measuring) and not call.is_shielded,
        )
        for call in calls
    )
    if calls and all(call.due and call.point.counts == "iteration" for call in calls):
        any_due = " or ".join(dict.fromkeys(call.due for call in calls))
        return DueScope(compiled, eval(f"lambda: {any_due}", {"hl_host": calls[0].host}))
    return compiled


def compile_enter(call: Call) -> Callable[..., Any]:
    """Return a function that creates the generator of an around_ hook, or returns None when it is not due."""
    due = f" if {call.due} else None" if call.due else ""
    code = f"lambda {', '.join(call.point.arguments)}: hl_method({call.passed}){due}"
    compiled: Callable[..., Any] = eval(code, {"hl_method": call.method, "hl_host": call.host})
    return compiled

"""Evaluation: which loops are evaluated, when a validation is due, and what happens if a signal interrupts it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Literal

from hookline.common import launched
from hookline.common.escape import escaped
from hookline.common.modes import in_mode
from hookline.engine.loops import end_if_signaled, end_without_state, evaluate
from hookline.errors import DistributedError, HookError
from hookline.plan.callers import call_in_progress
from hookline.run.handling import Validations
from hookline.state.before_validation import BeforeValidation, Interrupted, actors_inside, before_validation

if TYPE_CHECKING:
    from hookline.engine.compute import Compute
    from hookline.engine.loop_specs import EvalLoop
    from hookline.run.position import Position
    from hookline.state.host import Host

Stage = Literal["val", "test"]
#: The share of the grace period after which a validation that a signal could not interrupt is given up.
IN_TIME = 0.9
#: How many evaluations may run inside each other, before a hook that evaluates again and again is refused.
DEEPEST = 8
#: What to declare if nobody has said when the process will be killed.
UNKNOWN = (
    f"a kill before that loses the steps since the last checkpoint, so set the environment variable {launched.GRACE} "
    "to the seconds between a signal and the kill"
)


class Evaluation(Validations):
    """The evaluations of a run.

    Args:
        host: The owner of the plan, the counters, the requests and the checkpoints.
        compute: The model, its device and its precision.
        val: The validation loops by name.
        test: The test loops by name.
        seed: The seed of the order of the data.
        is_due: Returns whether a validation must run at a position, before the next step.
    """

    def __init__(
        self,
        host: Host,
        compute: Compute,
        val: dict[str, EvalLoop],
        test: dict[str, EvalLoop],
        seed: int = 0,
        is_due: Callable[[Position], bool] = lambda position: False,
    ) -> None:
        self.host, self.compute, self.loops, self.seed = host, compute, {"val": val, "test": test}, seed
        self._is_due = is_due
        self.current = host.current
        #: The loop that is running.
        self.running: EvalLoop | None = None
        #: Called after a validation during training: hooks may have left gradients behind.
        self.after_validation: Callable[[], None] = lambda: None
        self._before: BeforeValidation | None = None
        #: True while the state before an interrupted validation is saved.
        self._interrupted = False
        #: True if a validation cannot be left although a signal has come.
        self._has_to_finish = False
        #: The loops whose batches are being evaluated, each inside the other.
        self._open: list[EvalLoop] = []
        #: How many evaluations of hooks run now, each inside the other.
        self._depth = 0
        self._thread = threading.get_ident()

    def run(self, stage: Stage) -> dict[str, Any]:
        """Validate or test, and return the metrics."""
        return evaluate(self, stage)

    def run_inside(self, stage: Stage) -> dict[str, Any]:
        """Evaluate for a hook in the middle of a run, and return the metrics. The run finds everything as it left it.

        It counts as a validation, but not as the one that is due at this position. A signal does not interrupt it,
        because the state in the middle of a hook cannot be saved.
        """
        self._refuse_inside(stage)
        host, position, current = self.host, self.host.position, self.current
        running, batch, weight = self.running, current.batch, current.weight
        validated_at = position.validated_at
        before, has_to_finish = self._before, self._has_to_finish
        host.strategy.settle()
        self._depth, self._before = self._depth + 1, None
        try:
            with host.plan.ledger.part("validation"), in_mode(self.compute.model, training=False):
                return self.run(stage)
        finally:
            self.running, current.batch, current.weight = running, batch, weight
            position.validated_at = validated_at
            self._depth, self._before, self._has_to_finish = self._depth - 1, before, has_to_finish

    def _refuse_inside(self, stage: Stage) -> None:
        """Refuse an evaluation that would spoil the one around it, or never end, or run beside the loop."""
        call = call_in_progress(self.host.plan.host)
        if threading.get_ident() != self._thread:
            raise HookError(
                f"runner.{stage}() was called in another thread than the loop, which uses the model; call "
                "runner.request_val() instead"
            )
        spoils = any(loop.metrics.shares(other.metrics) for loop in self.loops[stage].values() for other in self._open)
        # A loop that a project has written does not say where its batches begin.
        if spoils or (call is not None and call.point.name.endswith(f"_{stage}_iter")):
            where = "in an evaluation" if call is None else f"at {call.point.name}"
            raise HookError(
                f"runner.{stage}() was called {where}, where it would discard the results of the batches "
                f"so far; call it at after_{stage}"
            )
        if self._depth == DEEPEST:
            raise HookError(
                f"runner.{stage}() was called inside {DEEPEST} evaluations of hooks: a hook evaluates at a point of "
                "the evaluation that it starts, without end; let it return if it is already evaluating"
            )

    @contextmanager
    def of_loop(self, loop: EvalLoop) -> Iterator[None]:
        """Surround the batches of a loop."""
        self.running = loop
        self._open.append(loop)
        try:
            yield
        finally:
            self._open.pop()

    def in_mode(self) -> AbstractContextManager[None]:
        """Return the context in which the model is evaluated."""
        return in_mode(self.compute.model, training=False)

    # -- validations during training

    def due(self, position: Position | None = None) -> bool:
        """Return whether a validation must run before the next step, at this position or another one."""
        if not self.loops["val"]:
            return False
        return self.host.requests.validate or self._is_due(position or self.host.position)

    @property
    def possible(self) -> bool:
        """Return whether there is a validation loop."""
        return bool(self.loops["val"])

    def run_if_due(self) -> bool:
        """Validate if it is due or was requested, and return whether it did."""
        if not self.due():
            return False
        self.validate()
        self.after_validation()
        return True

    def remember(self) -> None:
        """Remember a validation that is due inside an accumulation window, to be run at the end of the window."""
        if self.due():
            self.host.requests.validate = True

    def validate(self) -> None:
        """Validate now. If a signal interrupts it, the state from before it is saved."""
        host = self.host
        host.strategy.settle()
        self._before = before_validation(host, self.compute.model)
        host.requests.validate = False
        try:
            with host.plan.ledger.part("validation"):
                self.run("val")
        except Interrupted:
            self._interrupted = True
            end_if_signaled(host)
        finally:
            self._before, self._interrupted, self._has_to_finish = None, False, False
        host.journal.note("validation")

    def leave_if_signaled(self) -> None:
        """Leave a validation after a signal to any process, if the state before it is saved or known.

        Looking at the requests also ends a forked copy of the loop.
        """
        if self.host.running == "train":
            self.host.strategy.agree_in_evaluation(self.host.requests)
        self._leave_if_possible()

    def leave_with_others(self) -> None:
        """Wait, after the last batch of an evaluation, until no process has more. A signal still ends it."""
        host = self.host
        while host.running == "train" and host.strategy.agree_in_evaluation(host.requests, ended=True):
            self._leave_if_possible()
        self._leave_if_possible()

    def _leave_if_possible(self) -> None:
        host = self.host
        if self._has_to_finish:
            self._end_if_overdue()
        if not host.requests.signal or self._has_to_finish:
            return
        if host.strategy.on_main(host.saving.is_saved_at_last):
            end_if_signaled(host)
        elif not host.strategy.any(self._before is None):
            raise Interrupted
        if hooks := actors_inside(host):
            grace = launched.grace()
            end = UNKNOWN if grace is None else f"after {IN_TIME * grace:g} seconds, the run ends without saving"
            host.terminal.say(f"the validation is finished first{_because_of(hooks)}; {end}")
        self._has_to_finish = True  # asking again would need an exchange, after a batch that not all processes have

    def _end_if_overdue(self) -> None:
        """End a run whose validation takes so long after a signal that the launcher would kill its processes.

        The rest of the grace period is for leaving: the other processes have to agree, and records are written.
        """
        host, grace = self.host, launched.grace()
        if grace is not None and time.monotonic() >= host.requests.signaled_at + IN_TIME * grace:
            host.requests.ask_end_at_once()
        if host.requests.overdue:
            end_without_state(host, _because_of(actors_inside(host)))

    def rewind(self, states: dict[str, Any]) -> None:
        """Replace the states that an interrupted validation has changed."""
        if self._interrupted and self._before is not None:
            self._before.put_into(states)

    # -- for hooks

    @contextmanager
    def more_loops(self, val: Mapping[str, EvalLoop], test: Mapping[str, EvalLoop]) -> Iterator[None]:
        """Also evaluate these loops inside the context, for hooks that evaluate the same data in another way."""
        self.loops["val"].update(val)
        self.loops["test"].update(test)
        try:
            yield
        finally:
            for name in val:
                del self.loops["val"][name]
            for name in test:
                del self.loops["test"][name]

    def compare_metrics(self, stage: str, metrics: Mapping[str, Any]) -> None:
        """Refuse a metric that differs between the processes: hooks would decide differently, and wait for ever."""
        numbers = {name: float(value) for name, value in metrics.items() if isinstance(value, (int, float))}
        everyone = self.host.strategy.gather(numbers)
        for rank, theirs in enumerate(everyone):
            for name, value in everyone[0].items():
                other = theirs.get(name, math.nan)
                if not _same(other, value):
                    error = DistributedError(
                        f"the metric '{escaped(name)}' of {stage} differs between the processes (rank 0: {value:g}, "
                        f"rank {rank}: {other:g}), so they would decide differently; an object with compute() has to "
                        "sum up over the processes itself, as torchmetrics objects do"
                    )
                    error.was_reported = True  # all processes raise it
                    raise error


def _because_of(hooks: list[str]) -> str:
    """Return why a validation cannot be left, and which declaration changes that."""
    if not hooks:
        return ""
    return (
        f", because {', '.join(map(escaped, hooks))} takes part in it and may change training; a hook that only looks "
        "is left at once if it declares role = 'observer'"
    )


def _same(first: float, second: float) -> bool:
    both_nan = math.isnan(first) and math.isnan(second)
    return both_nan or math.isclose(first, second, rel_tol=1e-6, abs_tol=1e-9)

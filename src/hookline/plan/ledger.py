"""The ledger of a training: what every hook costs at every point, and the parts of a step beside the hooks.

Calls that happen now and then are always measured. Work of every iteration is measured in one of 31 iterations,
and the total is extrapolated from these. In the other iterations, the ledger costs a loop one comparison:

    if position.iter >= ledger.next_turn:
        ledger.turn()

In a measured iteration, the plan uses points and scopes that read the clock. A cost is exclusive: the seconds of a hook
that runs in a validation belong to the hook.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from hookline.common.memory import Search, on_device, resident
from hookline.common.pace import Pace
from hookline.plan.budgets import Budgets
from hookline.plan.costs import FIRST, PERIOD, Cost, Total

if TYPE_CHECKING:
    from pathlib import Path

    from hookline.plan.calls import Call
    from hookline.plan.entry import Entry
    from hookline.plan.plan import Plan
    from hookline.plan.scopes import Passage
    from hookline.plan.trace import Trace

#: The parts of training beside the hooks.
PARTS = ("data", "forward", "backward", "optimizer", "saving", "validation")
#: The parts that are the bodies of scopes. They are measured in one of 31 iterations.
PART_OF_SCOPE = {"around_train_forward": "forward", "around_backward": "backward", "around_optimizer_step": "optimizer"}

#: The seconds between two looks at budgets and memory, and the most samples of memory that are kept.
LOOK, SAMPLES = 1.0, 240
#: The costs of this many hooks that were removed are kept by name, and the costs of all others together.
MOST_FORMER, FORMER = 100, "other hooks that were removed"


class Counters(Protocol):
    """The position of a host."""

    iter: int


class Refresh(Protocol):
    """Writes the ledger into a file, if that is due."""

    def __call__(self, soon: bool = False) -> None:
        """Write the file after some seconds, or sooner."""


class Ledger:
    """The costs of one session of training. Outside training, nothing is measured."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._clock = time.perf_counter
        self._position: Counters | None = None
        #: The objects of the run that hold tensors: the model and the optimizers.
        self.roots: Callable[[], Iterable[Any]] = tuple
        #: Writes the ledger into a file, if that is due: after some seconds, or sooner with `soon=True`.
        self.refresh: Refresh = do_nothing
        #: Writes every measured span into a file, if the user asked for it.
        self.trace: Trace | None = None
        #: The file of the trace of the last session.
        self.traced: Path | None = None
        self._reset()

    def _reset(self) -> None:
        self.parts = {name: Cost() for name in PARTS}
        #: The seconds of all measurements nested in the current one.
        self.inside = 0.0
        #: The number of finished iterations at which a measured iteration begins or ends.
        self.next_turn: float = math.inf
        self.first_step = 0
        self.seconds_before_steps = 0.0
        self._steps = self._sampled = 0
        #: The iterations, and the measured ones, before those that totals are extrapolated from.
        self._settled = (0, 0)
        self.began = self._ended = self._clock()
        self.is_open = False
        #: The number of measured spans, and the seconds of the ledger's other work.
        self._spans = 0
        self._worked = 0.0
        #: The seconds of waiting for data before the current iteration.
        self._waited = 0.0
        self._seconds_per_span = 0.0
        #: The costs of hooks that were removed, by name and point.
        self._former: dict[str, dict[str, Total]] = {}
        self.budgets = Budgets(self._plan)
        self.memory: list[dict[str, Any]] = []
        self._memory_pace = Pace(LOOK)
        self._look_pace = Pace(LOOK)

    # -- a session

    def open(self, position: Counters) -> None:
        """Begin a session of training. From now on, calls that happen now and then are measured."""
        self._clock = time.perf_counter
        self._reset()
        self.traced = None if self.trace is None else self.trace.path
        for call in self._plan.all_calls():
            call.cost.reset()
        self._seconds_per_span = self._calibrate()
        self._position, self.is_open = position, True
        self._plan.measure("rare")

    def _calibrate(self) -> float:
        """Return the seconds that measuring adds to a call."""
        began = self._clock()
        for _ in range(100):
            self.end(Cost(), 0.0, self._clock())
        seconds = (self._clock() - began) / 100
        self.inside, self._spans = 0.0, 0
        return seconds

    def begin_steps(self) -> None:
        """Begin to measure iterations. In a resumed run, the position is now the checkpoint's."""
        assert self._position is not None, "it was opened"
        self.first_step, self.seconds_before_steps = self._position.iter, self.seconds
        self.next_turn = self.first_step + FIRST
        if self._is_traced():
            self._plan.measure("all")

    def close(self) -> None:
        """End the session."""
        if self.is_open:
            self._steps, self._ended = self.steps, self._clock()
            self._look(final=True)
            self._plan.measure("none")
            self.next_turn, self._position, self.is_open = math.inf, None, False
            if self.trace is not None:
                self.trace.close()
                self.trace = None

    @property
    def seconds(self) -> float:
        """Return how long the session took, or takes so far."""
        return (self._clock() if self.is_open else self._ended) - self.began

    @property
    def steps(self) -> int:
        """Return the finished iterations of the session."""
        return self._steps if self._position is None else self._position.iter - self.first_step

    @property
    def sampled_steps(self) -> int:
        """Return the measured iterations of the session."""
        return self._sampled

    # -- measuring

    def turn(self) -> None:
        """Begin or end a measured iteration, between two iterations."""
        plan, began, worked = self._plan, self._clock(), self._worked
        done = self.first_step + self.steps
        ended = plan.is_sampling
        self._sampled += ended
        self._waited = self.parts["data"].seconds
        if self._is_traced():
            plan.measure("all")
            self.next_turn = done + 1
        elif ended:
            plan.measure("rare")
            if self.trace is not None and self.steps == self.trace.first_steps:
                self._settle()
            self.next_turn = done - 1 + PERIOD
            self._look()
        else:
            plan.measure("all")
            self.next_turn = done + 1
        self._worked = worked + self._clock() - began

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count the time of a `with` block as the ledger's own, and not as time of the hook that it runs in."""
        began = self._clock()
        try:
            yield
        finally:
            elapsed = self._clock() - began
            self.inside += elapsed
            self._worked += elapsed

    def end(self, cost: Cost, outer: float, began: float) -> None:
        """Add the seconds since `began` to a cost, excluding nested measurements."""
        elapsed = self._clock() - began
        own = elapsed - self.inside
        self.inside = outer + elapsed
        self._spans += 1
        cost.calls += 1
        cost.seconds += own
        if own > cost.longest:
            cost.longest = own

    @contextmanager
    def timed(self, call: Call, passage: Passage, last: bool) -> Iterator[None]:
        """Measure a `with` block that enters a generator, or, at `last`, leaves it. Both together are one call."""
        outer, self.inside, began = self.inside, 0.0, self._clock()
        try:
            with call.shield():
                yield
        finally:
            part = Cost()
            self.end(part, outer, began)
            passage.seconds += part.seconds
            if self.trace is not None:
                self.trace.add_call(call, began)
            if last:
                call.cost.add(passage.seconds)

    def begin_scope(self) -> tuple[float, float]:
        """Begin to measure the body of a scope in a measured iteration, and return the arguments for `end_scope`."""
        outer, self.inside = self.inside, 0.0
        return outer, self._clock()

    def end_scope(self, name: str, outer: float, began: float) -> None:
        """End measuring the body of a scope, which is a part of a step or, for a trace, the whole step."""
        part = PART_OF_SCOPE.get(name)
        if part is not None:
            self.end(self.parts[part], outer, began)
            if self.trace is not None:
                self.trace.add_part(part, began)
            return
        self.inside += outer
        if self.trace is not None:
            waited = self.parts["data"].seconds - self._waited  # just before the step began
            if waited > 0:
                self.trace.add_part("data", began - waited, waited)
            self.trace.add_step(self.first_step + self.steps + 1, began)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure a save or a validation. It is always measured, and nothing in it counts as a part of a step."""
        if not self.is_open:
            yield
            return
        with self.resting():
            outer, self.inside, began = self.inside, 0.0, self._clock()
            try:
                yield
            finally:
                self.end(self.parts[name], outer, began)
                if self.trace is not None:
                    self.trace.add_part(name, began)
        self.refresh(soon=True)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Do not measure the parts of a step inside, because a forward pass there is not one of training."""
        measuring = self._plan.measuring
        if measuring != "none":
            self._plan.measure("rare")
        try:
            yield
        finally:
            self._plan.measure(measuring)

    def _is_traced(self) -> bool:
        return self.trace is not None and self.steps < self.trace.first_steps

    def _look(self, final: bool = False) -> None:
        """Compare the hooks with their budgets, note the memory, and let the file be written, now and then."""
        now = self._clock()
        if final or self._look_pace.is_due(now):
            self.budgets.look(self, final)
            self._look_pace.done(now, self._clock())
        if final or self._memory_pace.is_due(now):
            self._note_memory()
            self._memory_pace.done(now, self._clock())
        if not final:
            self.refresh()
            if self.trace is not None:
                self.trace.flush()

    def _note_memory(self) -> None:
        held = Search().look_into(*self.roots(), *(entry.hook for entry in self._plan.entries))
        device = on_device(getattr(self._plan.host, "device", None))
        step = self.first_step + self.steps
        self.memory.append({"step": step, "resident": resident(), "tensors": round(held.tensors), "device": device})
        if len(self.memory) > SAMPLES:  # in a longer run, the samples are further apart
            del self.memory[1::2]
            self._memory_pace.gap *= 2

    # -- totals

    @property
    def _scales(self) -> tuple[float, float]:
        """Return how many iterations a measured one stands for: one since the settling, and one before it."""
        sampling = self.is_open and self._plan.is_sampling  # the current iteration has been measured in part
        settled, settled_samples = self._settled
        measured = self._sampled + sampling - settled_samples
        if measured:
            return (self.steps + sampling - settled) / measured, 1.0
        return 0.0, self.steps / settled if settled else 1.0

    def total_of(self, call: Call) -> Total:
        """Return the cost of a hook at a point so far."""
        return call.cost.total(*self._scales) if call.is_frequent else call.cost.total()

    def totals(self) -> dict[str, dict[str, Total]]:
        """Return the cost of every hook at each of its points. Functions of the same name are added up."""
        totals = {name: dict(points) for name, points in self._former.items()}
        for entry in self._plan.entries:
            points = totals.setdefault(entry.name, {})
            for call in entry.all_calls():
                points[call.point.name] = points.get(call.point.name, Total()) + self.total_of(call)
        return totals

    def seconds_of_hooks(self) -> dict[str, dict[str, float]]:
        """Return the seconds of every hook at each of its points."""
        totals = self.totals()
        return {name: {point: total.seconds for point, total in points.items()} for name, points in totals.items()}

    def parts_total(self) -> dict[str, Total]:
        """Return the cost of the parts beside the hooks, then of all hooks, then the rest."""
        sampled = PART_OF_SCOPE.values()
        scales = self._scales
        totals = {name: cost.total(*scales) if name in sampled else cost.total() for name, cost in self.parts.items()}
        totals["hooks"] = sum((total for points in self.totals().values() for total in points.values()), Total())
        left = self.seconds - sum(total.seconds for total in totals.values())
        return {**totals, "other": Total(seconds=max(left, 0.0))}

    def seconds_of_parts(self) -> dict[str, float]:
        """Return how the time is divided. Everything that is none of the other parts counts as steps."""
        total = {name: part.seconds for name, part in self.parts_total().items()}
        known = {name: total[name] for name in ("hooks", "validation", "saving")}
        steps = max(self.seconds - sum(known.values()) - total["data"], 0.0)
        return {"data": total["data"], "steps": steps, **known}

    def overhead(self) -> float:
        """Return an estimate of the seconds that the ledger itself took."""
        return self._worked + self._spans * self._seconds_per_span

    def retire(self, entry: Entry) -> None:
        """Keep the costs of a hook that is removed during training."""
        self.budgets.forget(entry)
        if self.is_open:
            known = entry.name in self._former or len(self._former) < MOST_FORMER
            points = self._former.setdefault(entry.name if known else FORMER, {})
            for call in entry.all_calls():
                points[call.point.name] = points.get(call.point.name, Total()) + self.total_of(call)

    def _settle(self) -> None:
        """Turn the estimates so far into exact costs: every iteration was measured until now."""
        frequent = [call.cost for call in self._plan.all_calls() if call.is_frequent]
        for cost in (*(self.parts[name] for name in PART_OF_SCOPE.values()), *frequent):
            cost.settle(1.0)
        self._settled = (self.steps, self._sampled)


def do_nothing(soon: bool = False) -> None:
    """Write nothing."""

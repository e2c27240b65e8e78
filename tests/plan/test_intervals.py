from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from hookline import Hook, every
from hookline.plan.plan import Plan
from tests.performance.counting import count_instructions


class Counters:
    """A host with the counters of a run."""

    iter = 0
    epoch = 0
    ends_epoch = False
    current_updates = 0


def plan_with(intervals: list[Any], called: list[tuple[int, Any]]) -> tuple[Counters, Plan]:
    """Return a plan with a function per interval; None runs every time. Each call is added to `called`."""
    host = Counters()
    plan = Plan(host)
    for number, interval in enumerate(intervals):

        def note(runner: Any, number: int = number) -> None:
            called.append((runner.iter, number))

        plan.on("after_train_iter", note, every=interval)
    return host, plan


@pytest.mark.parametrize("seed", range(20))
def test_neighbors_with_intervals_run_exactly_when_they_are_due(seed: int) -> None:
    draw = random.Random(seed)
    intervals = [draw.choice([None, 1, 2, 3, 5, 7, 10, 12, "1ep", "2ep"]) for _ in range(12)]
    called: list[tuple[int, Any]] = []
    host, plan = plan_with(intervals, called)
    expected = []
    for _ in range(300):
        # mostly one step on, sometimes the same count again, or anywhere, as after a resume
        host.iter += draw.choice([1, 1, 1, 1, 1, 1, 1, 0, 40, -3, -host.iter])
        host.iter = max(host.iter, 0)
        host.epoch, host.ends_epoch = host.iter // 10, host.iter % 10 == 9
        plan.after_train_iter(0, None, None)
        for number, interval in enumerate(intervals):
            if isinstance(interval, str):
                due = host.ends_epoch and (host.epoch + 1) % int(interval[0]) == 0
            else:
                due = interval is None or (host.iter + 1) % interval == 0
            expected += [(host.iter, number)] * due
    assert called == expected


def test_an_error_names_the_hook_that_was_due() -> None:
    class Fails(Hook):
        @every(2)
        def after_train_iter(self, runner: Any) -> None:
            raise ValueError("here")

    class Fine(Hook):
        @every(2)
        def after_train_iter(self, runner: Any) -> None: ...

    host = Counters()
    plan = Plan(host)
    for hook in (Fine(), Fine(), Fails(), Fine()):
        plan.add(hook)
    plan.after_train_iter(0, None, None)
    for _ in range(2):  # it is due again if the loop repeats the iteration
        host.iter = 1
        with pytest.raises(ValueError, match="here") as raised:
            plan.after_train_iter(0, None, None)
        assert raised.value.__notes__[0].startswith("in hook Fails, at after_train_iter, epoch=0 iter=1")


@pytest.mark.parametrize("interval", [1000, "1ep"])
def test_a_thousand_hooks_that_are_not_due_cost_no_more_than_two(interval: Any) -> None:
    costs = []
    for number in (2, 1000):
        host, plan = plan_with([interval] * number, [])
        plan.after_train_iter(0, None, None)
        host.iter = 1
        costs.append(count_instructions(partial(plan.after_train_iter, 0, None, None)))
    assert costs[0] == costs[1] <= 40


def test_a_scope_is_skipped_while_none_of_its_hooks_is_due() -> None:
    host, called = Counters(), []
    plan = Plan(host)

    def around(interval: Any) -> Any:
        def entered(runner: Any) -> Any:
            called.append((runner.iter, interval))
            yield

        return entered

    for interval in (2, 3, "1ep"):
        plan.on("around_train_iter", around(interval), every=interval)
    true = []
    for host.iter in range(8):
        host.ends_epoch = host.iter == 4
        true.append(bool(plan.around_train_iter))
        with plan.around("train_iter", 0, None):
            pass
    assert called == [(1, 2), (2, 3), (3, 2), (4, "1ep"), (5, 2), (5, 3), (7, 2)]
    assert true == [False, True, True, True, True, True, False, True]
    plan.on("around_train_iter", around(None))
    host.iter = 0
    assert plan.around_train_iter

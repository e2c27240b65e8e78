"""Budgets of hooks: the warning, and what is refused, with a clock that only the run advances."""

from __future__ import annotations

import gc
import logging
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from hookline import Hook, Runner
from hookline.errors import HookError
from hookline.plan.budgets import parse_budget
from hookline.testing import toy_runner

if TYPE_CHECKING:
    from tests.clock import Clock


class Watches(Hook):
    """An observer that takes one second per iteration."""

    role = "observer"
    draws_random_numbers = False

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.seen: list[int] = []
        self.began = 0

    def before_run(self) -> None:
        self.clock.now += 10_000

    def before_train_iter(self) -> None:
        self.began += 1

    def after_train_iter(self, runner: Runner) -> None:
        self.clock.now += 1
        self.seen.append(runner.iter)


class Acts(Watches):
    role = "actor"  # type: ignore[assignment]  # the same hook, with the other role


def train(clock: Clock, hook: Hook, steps: int = 400, **parts: Any) -> Runner:
    """Train with steps that take four seconds."""

    def step(model: Any, batch: Any) -> Any:
        clock.now += 4
        return model(batch[0]).square().mean()

    runner = toy_runner(max_iters=steps, step=step, custom_hooks=[hook], val=None, **parts)
    runner.train()
    return runner


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.fixture(autouse=True)
def _logs(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("hookline").addHandler(caplog.handler)
    monkeypatch.setattr(logging.getLogger("hookline"), "propagate", False)


@pytest.mark.parametrize("kind", [Watches, Acts])
def test_a_hook_over_its_budget_is_named_once_with_its_point_its_share_and_what_to_change(
    clock: Clock, caplog: pytest.LogCaptureFixture, kind: type[Watches]
) -> None:
    hook = kind(clock)
    hook.budget = "5%"  # type: ignore[misc]  # a class variable, set for one hook
    runner = train(clock, hook)
    assert warnings_of(caplog) == [
        f"{kind.__name__} takes 20.0% of the training time, most of it at after_train_iter; its budget is 5%. "
        "Give it a larger interval, such as @every(4) at after_train_iter, or a larger budget."
    ]
    assert hook.seen == list(range(400))
    found = next(each for each in runner.costs().to_dict()["hooks"] if each["name"] == kind.__name__)
    assert found["budget"] == 0.05
    assert "over its budget of 5%" in str(runner.costs())


def test_the_warning_suggests_an_interval_for_a_hook_that_has_one(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    hook = Watches(clock)
    hook.interval = 10  # type: ignore[attr-defined]  # as many hooks have
    hook.budget = 0.1  # type: ignore[misc]  # a class variable, set for one hook
    train(clock, hook)
    [text] = warnings_of(caplog)
    assert text.endswith("Give it a larger interval, such as 20 (now 10), or a larger budget.")


def test_within_the_budget_there_is_no_warning(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    train(clock, Watches(clock), budget="20.1%")
    assert warnings_of(caplog) == []


def test_a_short_run_is_judged_at_its_end(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    train(clock, Watches(clock), steps=3, budget="5%")
    assert len(warnings_of(caplog)) == 1


@pytest.mark.parametrize("value", ["5", "5 percent", "%", "-5%", 0, -0.1, 1.5, "101%", True, float("nan"), [0.05], ""])
def test_other_values_are_refused(clock: Clock, value: Any) -> None:
    message = f"a budget must be a share of the training time, such as 5% or 0.05, not {value!r}"
    with pytest.raises(HookError) as refused:
        parse_budget(value)
    assert str(refused.value) == message
    with pytest.raises(HookError) as refused:
        toy_runner(custom_hooks=[{"type": Watches, "clock": clock, "budget": value}])
    assert str(refused.value) == f"Watches: {message}"


def test_a_hooks_own_budget_overrides_the_budget_of_all_observers(clock: Clock) -> None:
    runner = toy_runner(budget="5%")
    runner.register_hook(Watches(clock), budget=0.5)
    runner.register_hook(Acts(clock), budget="1%")
    budgets = {entry.name: entry.budget for entry in runner.plan if entry.budget is not None}
    assert budgets == {"LoggerHook": 0.05, "ReportHook": 0.05, "Watches": 0.5, "Acts": 0.01}


def test_a_hook_that_is_removed_is_forgotten(clock: Clock) -> None:
    """A run that adds and removes hooks all the time must not keep them."""
    kept: list[weakref.ref[Watches]] = []
    runner = toy_runner(max_iters=200, val=None, budget="1%")

    @runner.on("after_train_iter")
    def exchange(runner: Runner) -> None:
        clock.now += 4
        for old in [entry.hook for entry in runner.plan if isinstance(entry.hook, Watches)]:
            runner.remove_hook(old)
        hook = Watches(clock)
        kept.append(weakref.ref(hook))
        runner.register_hook(hook)

    runner.train()
    gc.collect()
    budgets = runner.plan.ledger.budgets
    assert len([entry for entry in budgets._warned if isinstance(entry.hook, Watches)]) <= 2
    assert [ref for ref in kept if ref() is not None] == kept[-1:]

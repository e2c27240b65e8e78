"""Budgets of hooks: the warning, throttling, and what is refused, with a clock that only the run advances."""

from __future__ import annotations

import gc
import logging
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline import Hook, Runner
from hookline.errors import ConfigError, HookError
from hookline.plan.budgets import parse_budget
from hookline.strategies import Single
from hookline.testing import toy_runner
from tests.clock import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


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
    assert (found["budget"], found["throttled"]) == (0.05, 1)
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


def test_throttling_doubles_the_interval_until_the_observer_is_within_its_budget(
    clock: Clock, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    hook = Watches(clock)
    runner = train(clock, hook, steps=2000, budget=0.05, budget_action="throttle", work_dir=tmp_path)
    [text] = warnings_of(caplog)
    assert text == (
        "Watches takes 20.0% of the training time, most of it at after_train_iter; its budget is 5%. It now runs less "
        "often (budget_action: throttle). Give it a larger interval, such as @every(4) at after_train_iter."
    )
    gaps = [after - before for before, after in zip(hook.seen, hook.seen[1:], strict=False)]
    assert [gap for gap, before in zip(gaps, [0, *gaps], strict=False) if gap != before] == [1, 2, 4, 8]
    assert all((iteration + 1) % 8 == 0 for iteration in hook.seen[-20:])
    assert hook.began == len(hook.seen), "both points of the hook run in the same iterations"
    costs = runner.costs()
    found = next(each for each in costs.hooks if each.name == "Watches")
    assert found.throttled == 8
    assert found.points["after_train_iter"].calls == pytest.approx(len(hook.seen), rel=0.05)
    assert found.points["after_train_iter"].seconds == pytest.approx(len(hook.seen), rel=0.05)
    assert "throttled: runs 1/8 as often" in str(costs)
    assert "Watches ran 1/8 as often" in str(runner.summary())
    assert runner.summary().to_dict()["throttled"] == {"Watches": 8}
    assert "every 8 iterations" in runner.plan.explain()


def test_an_actor_is_never_throttled(clock: Clock) -> None:
    hook = Acts(clock)
    train(clock, hook, budget=0.05, budget_action="throttle")
    assert hook.seen == list(range(400))
    with pytest.raises(HookError) as refused:
        toy_runner().register_hook(Acts(clock), budget="5%", budget_action="throttle")
    assert str(refused.value) == (
        "Acts: budget_action 'throttle' is only for observers (role = 'observer'); Acts affects training, so calling "
        "it less often would change the result"
    )


def test_a_throttled_run_trains_exactly_as_another(clock: Clock) -> None:
    one = train(clock, Watches(clock), budget=0.05, budget_action="throttle")
    other = train(clock, Watches(clock))
    for mine, others in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(mine, others)


def test_a_hook_of_several_processes_that_exchanges_values_is_not_throttled(clock: Clock) -> None:
    class Several(Single):
        acts_alone = False

    class Exchanges(Watches):
        exchanges = True

    with pytest.raises(HookError, match="Exchanges: budget_action 'throttle' is not possible with several processes"):
        toy_runner(strategy=Several()).register_hook(Exchanges(clock), budget="5%", budget_action="throttle")
    runner = toy_runner(strategy=Several(), budget="5%", budget_action="throttle", custom_hooks=[Exchanges(clock)])
    budget = next(entry.budget for entry in runner.plan if entry.name == "Exchanges")
    assert budget is not None
    assert not budget.throttles


@pytest.mark.parametrize("value", ["5", "5 percent", "%", "-5%", 0, -0.1, 1.5, "101%", True, float("nan"), [0.05], ""])
def test_other_values_are_refused(clock: Clock, value: Any) -> None:
    message = f"a budget must be a share of the training time, such as 5% or 0.05, not {value!r}"
    with pytest.raises(HookError) as refused:
        parse_budget(value)
    assert str(refused.value) == message
    with pytest.raises(HookError) as refused:
        toy_runner(custom_hooks=[{"type": Watches, "clock": clock, "budget": value}])
    assert str(refused.value) == f"Watches: {message}"


def test_an_action_needs_a_budget_and_a_known_name(clock: Clock) -> None:
    with pytest.raises(ConfigError, match="^budget_action needs a budget, such as budget='5%'$"):
        toy_runner(budget_action="throttle")
    with pytest.raises(ConfigError, match="^budget_action must be 'warn' or 'throttle', not 'stop'$"):
        toy_runner(budget="5%", budget_action="stop")
    with pytest.raises(HookError, match="^Watches: budget_action needs a budget, such as budget: 5%$"):
        toy_runner().register_hook(Watches(clock), budget_action="warn")
    with pytest.raises(HookError, match="^Watches: budget_action must be 'warn' or 'throttle', not 'stop'$"):
        toy_runner().register_hook(Watches(clock), budget="5%", budget_action="stop")  # type: ignore[arg-type]


def test_a_hooks_own_budget_overrides_the_budget_of_all_observers(clock: Clock) -> None:
    runner = toy_runner(budget="5%", budget_action="throttle")
    runner.register_hook(Watches(clock), budget=0.5)
    runner.register_hook(Watches(clock), budget_action="warn")
    runner.register_hook(Acts(clock), budget="1%")
    found = {entry.name: entry.budget for entry in runner.plan}
    budgets = {name: (budget.share, budget.throttles) for name, budget in found.items() if budget is not None}
    assert budgets == {
        "LoggerHook": (0.05, True),
        "ReportHook": (0.05, True),
        "Watches": (0.5, True),
        "Watches#2": (0.05, False),
        "Acts": (0.01, False),
    }


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
    assert len([entry for entry in (*budgets._windows, *budgets._warned) if isinstance(entry.hook, Watches)]) <= 2
    assert [ref for ref in kept if ref() is not None] == kept[-1:]

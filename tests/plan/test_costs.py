"""Per-hook timing, tested with a clock that only the hooks and steps of the run advance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from hookline import Hook, every
from hookline.plan.costs import Cost
from hookline.testing import toy_data, toy_runner

if TYPE_CHECKING:
    from tests.clock import Clock


class Slow(Hook):
    """Takes two seconds before an iteration and one after it, and more at other points."""

    priority = "VERY_LOW"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def before_train_iter(self) -> None:
        self.clock.now += 2

    def after_train_iter(self) -> None:
        self.clock.now += 1

    def after_val_iter(self) -> None:
        self.clock.now += 5

    def around_train_iter(self) -> Iterator[None]:
        self.clock.now += 0.5
        yield
        self.clock.now += 0.25


class Early(Slow):
    priority = "VERY_HIGH"


class Seldom(Hook):
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    @every(10)
    def after_train_iter(self) -> None:
        self.clock.now += 7


class Data:
    """Yields 250 batches that take three seconds each."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def __len__(self) -> int:
        return 250

    def __iter__(self) -> Iterator[Any]:
        for batch in toy_data(250):
            self.clock.now += 3
            yield batch


def run(clock: Clock, *hooks: Hook) -> dict[str, Any]:
    from hookline import TrainLoop
    from hookline.engine.steps import cross_entropy

    def step(model: Any, batch: Any) -> Any:
        clock.now += 4
        return cross_entropy(model, batch)

    loop = TrainLoop(Data(clock), step, max_epochs=1)
    runner = toy_runner(custom_hooks=hooks, default_hooks={"checkpoint": None})
    runner._host.replace_training(loop)
    runner.train()
    found = {name: runner.hub.get_info(name) for name in ("seconds_of", "seconds_of_hooks")}
    assert runner.plan.ledger.seconds_of_hooks()["IterTimerHook"]["after_train_iter"] == 0
    return found


@pytest.mark.parametrize("kind", [Slow, Early])
def test_data_steps_hooks_and_validation_are_told_apart_wherever_a_hook_stands(clock: Clock, kind: type[Slow]) -> None:
    found = run(clock, kind(clock))
    assert found["seconds_of"] == {
        "data": 750.0,
        "steps": 1000.0,
        "hooks": 250 * 3.75 + 10,
        "validation": 0.0,
        "saving": 0.0,
    }
    assert found["seconds_of_hooks"][kind.__name__] == {
        "before_train_iter": 500.0,
        "after_train_iter": 250.0,
        "after_val_iter": 10.0,
        "around_train_iter": 187.5,
    }


def test_a_method_with_an_interval_is_measured_each_time(clock: Clock) -> None:
    found = run(clock, Seldom(clock))
    assert found["seconds_of_hooks"]["Seldom"] == {"after_train_iter": 25 * 7.0}
    assert found["seconds_of"] == {"data": 750.0, "steps": 1000.0, "hooks": 175.0, "validation": 0.0, "saving": 0.0}


def test_a_hook_that_comes_during_training_is_measured_too(clock: Clock) -> None:
    class Brings(Hook):
        @every(100)
        def after_train_iter(self, runner: Any) -> None:
            if runner.iter == 99:
                runner.register_hook(Slow(clock))

    found = run(clock, Brings())
    measured = [iteration for iteration in range(1, 250, 31) if iteration >= 100]
    assert found["seconds_of_hooks"]["Slow"]["before_train_iter"] == pytest.approx(2 * len(measured) * 250 / 9)


def test_a_failing_observer_does_not_end_the_measuring(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Hook):
        priority, role, on_error, draws_random_numbers = "HIGH", "observer", "disable", False

        def after_train_iter(self, runner: Any) -> None:
            if runner.iter == 40:
                raise ValueError("no more")

    found = run(clock, Fails(), Slow(clock))
    assert found["seconds_of_hooks"]["Slow"]["after_train_iter"] == 250.0


def test_the_closing_table_names_the_dearest_hooks(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    from hookline.screen.terminal import Terminal

    runner = toy_runner(custom_hooks=[Slow(clock), Seldom(clock)], max_epochs=10)
    runner.train()
    Terminal().show(runner.summary())
    rows = {
        line.split("│")[1].strip(): line.split("│")[2].strip()
        for line in capsys.readouterr().out.splitlines()
        if "│" in line
    }
    assert rows["time"] == "hooks 278.0s"
    assert rows["hooks"] == "Slow 250.0s, Seldom 28.0s"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [((10, 10), 510), ((500, 10), 1000), ((10, 500, 10), 1000), ((10, 30), 1020), ((500,), 25500), ((500, 500), 25500)],
)
def test_one_long_call_among_the_measured_ones_counts_once(seconds: tuple[int, ...], expected: int) -> None:
    cost = Cost()
    for each in seconds:
        cost.add(each)
    total = cost.total(scale=51 / len(seconds))
    assert (total.calls, total.measured) == (51, len(seconds))
    assert total.seconds == pytest.approx(expected)

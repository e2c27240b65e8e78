"""The ledger, tested with a clock that only the hooks, steps, data and saves of a run advance."""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from hookline import EvalLoop, Hook, Optim, Runner, TrainLoop, every
from hookline.engine.steps import cross_entropy
from hookline.plan import ledger
from hookline.plan.ledger import SAMPLES
from hookline.testing import toy_data, toy_model, toy_runner

if TYPE_CHECKING:
    from tests.clock import Clock

STEPS = 310


class Slow(Hook):
    """Takes two seconds, or four every other time."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def after_train_iter(self, runner: Runner) -> None:
        self.clock.now += 2 + 2 * (runner.iter % 2)


class SlowSGD(torch.optim.SGD):
    """Takes half a second."""

    clock: Clock

    def step(self, closure: Any = None) -> Any:
        self.clock.now += 0.5
        return super().step(closure)


class Backward(torch.autograd.Function):
    """Takes one second in the backward pass."""

    clock: Clock

    @staticmethod
    def forward(context: Any, loss: torch.Tensor) -> torch.Tensor:
        return loss.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        Backward.clock.now += 1
        return gradient


def delayed(loss: torch.Tensor) -> torch.Tensor:
    """Return the loss, whose backward pass takes one second longer."""
    found: torch.Tensor = Backward.apply(loss)  # type: ignore[no-untyped-call]  # torch has no annotations here
    return found


class Data:
    """Yields batches that take three seconds each."""

    def __init__(self, clock: Clock, length: int) -> None:
        self.clock, self.length = clock, length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        for batch in toy_data(self.length):
            self.clock.now += 3
            yield batch


def slow_runner(clock: Clock, *hooks: Hook, steps: int = STEPS, **parts: Any) -> Runner:
    """Return a run whose step takes three seconds of data, four of forward, one of backward, half of the optimizer."""
    SlowSGD.clock = Backward.clock = clock

    def compute(model: Any, batch: Any) -> Any:
        clock.now += 4
        return delayed(cross_entropy(model, batch))

    def predict(model: Any, batch: Any) -> Any:
        clock.now += 10
        return model(batch[0]), batch[1]

    model = toy_model()
    runner = toy_runner(
        model=model,
        custom_hooks=hooks,
        val=EvalLoop(toy_data(2), predict, metrics={"n": lambda preds, target: 0.0}),
        test=None,
        optim=Optim(SlowSGD(model.parameters(), lr=0.1)),
        trial_batch=False,
        **parts,
    )
    runner._host.replace_training(TrainLoop(Data(clock, steps), compute, max_epochs=1))
    return runner


def seconds_of(runner: Runner) -> dict[str, float]:
    return {name: round(part["seconds"], 6) for name, part in runner.costs().to_dict()["parts"].items()}


def test_the_parts_of_a_step_are_told_apart_and_add_up_to_the_time_of_the_session(clock: Clock) -> None:
    runner = slow_runner(clock, Slow(clock))
    runner.train()
    parts = seconds_of(runner)
    assert parts.pop("hooks") == pytest.approx(3 * STEPS, rel=0.1)
    assert parts == {
        "data": 3.0 * STEPS,
        "forward": 4.0 * STEPS,
        "backward": 1.0 * STEPS,
        "optimizer": 0.5 * STEPS,
        "saving": 0.0,
        "validation": 20.0,
        "other": pytest.approx(0.0, abs=0.1 * STEPS),
    }
    costs = runner.costs()
    assert (costs.first_step, costs.steps, costs.sampled_steps) == (0, STEPS, STEPS // 31)
    assert costs.seconds == 3 * STEPS + 4 * STEPS + 1.5 * STEPS + 3 * STEPS + 20
    assert costs.parts["forward"].calls == STEPS
    assert costs.parts["data"].longest == 3.0


@pytest.mark.parametrize("sampled", [True, False])
def test_the_sums_agree_with_a_profiler_to_ten_percent(clock: Clock, sampled: bool) -> None:
    class Seldom(Slow):
        @every(3)
        def after_train_iter(self, runner: Runner) -> None:
            self.clock.now += 2 + runner.iter % 2

    hook = (Slow if sampled else Seldom)(clock)
    runner = slow_runner(clock, hook)
    profiler = cProfile.Profile(clock)
    profiler.runcall(runner.train)
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]  # an attribute that the stubs leave out
    profiled = {name: (value[0], value[3]) for (file, _, name), value in stats.items() if file == __file__}
    costs = runner.costs()
    found = next(each for each in costs.hooks if each.name == type(hook).__name__).points["after_train_iter"]
    calls, seconds = profiled["after_train_iter"]
    assert found.calls == calls
    assert found.seconds == pytest.approx(seconds, rel=0.1 if sampled else 1e-9)
    assert costs.parts["forward"].seconds == pytest.approx(profiled["compute"][1], rel=0.1)
    assert costs.parts["optimizer"].seconds == pytest.approx(profiled["step"][1], rel=0.1)
    assert costs.parts["validation"].seconds == pytest.approx(profiled["predict"][1], rel=0.1)


def test_a_hook_that_sleeps_is_measured_as_by_a_profiler_on_the_same_clock() -> None:
    class Sleeps(Hook):
        @every(2)
        def after_train_iter(self) -> None:
            time.sleep(0.004)

    runner = toy_runner(custom_hooks=[Sleeps()], max_epochs=5)
    profiler = cProfile.Profile(time.perf_counter)
    profiler.runcall(runner.train)
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]  # an attribute that the stubs leave out
    [ours] = [value[3] for (file, _, name), value in stats.items() if name == "after_train_iter" and file == __file__]
    found = next(each for each in runner.costs().hooks if each.name == "Sleeps")
    assert found.total.calls == 10
    assert found.total.seconds == pytest.approx(ours, rel=0.1)


def test_a_cost_is_exclusive_hooks_in_validations_and_saves_are_not_part_of_these(clock: Clock) -> None:
    class Everywhere(Hook):
        def after_val_iter(self) -> None:
            clock.now += 5

        def before_save_checkpoint(self) -> None:
            clock.now += 7

        def around_val(self) -> Iterator[None]:
            clock.now += 1
            yield
            clock.now += 2

    runner = slow_runner(clock, Everywhere(), steps=4)
    runner.train()
    costs = runner.costs()
    assert costs.parts["validation"].seconds == 20.0
    assert costs.parts["saving"].seconds == 0.0
    points = next(each for each in costs.hooks if each.name == "Everywhere").points
    assert {name: (total.calls, total.seconds, total.longest) for name, total in points.items()} == {
        "after_val_iter": (2, 10.0, 5.0),
        "before_save_checkpoint": (1, 7.0, 7.0),
        "around_val": (1, 3.0, 3.0),
    }


def test_a_step_that_calls_update_is_divided_too(clock: Clock) -> None:
    runner = slow_runner(clock)

    def step(model: Any, batch: Any, optim: Any) -> Any:
        clock.now += 4
        optim.update(delayed(cross_entropy(model, batch)))

    runner._host.replace_training(TrainLoop(Data(clock, 62), step, max_epochs=1))
    runner.train()
    parts = seconds_of(runner)
    assert [parts[name] for name in ("forward", "backward", "optimizer")] == [4.0 * 62, 1.0 * 62, 0.5 * 62]


def test_the_evaluation_of_a_hook_is_no_part_of_a_step(clock: Clock) -> None:
    class Evaluates(Hook):
        def after_train_iter(self, runner: Runner) -> None:
            with runner.paused(), runner.plan.around("forward", None):
                clock.now += 100

    runner = slow_runner(clock, Evaluates(), steps=31)
    runner.train()
    assert seconds_of(runner)["forward"] == 4.0 * 31
    assert seconds_of(runner)["hooks"] == 100.0 * 31


def test_removed_hooks_and_functions_of_the_same_name_keep_their_costs(clock: Clock) -> None:
    def tick(runner: Runner) -> None:
        clock.now += 1

    runner = slow_runner(clock, steps=4)
    runner.on("before_train")(tick)
    runner.on("before_train_epoch")(tick)

    @runner.on("after_train_epoch")
    def remove(runner: Runner) -> None:
        runner.remove_hook(tick)

    runner.train()
    ticks = next(each for each in runner.costs().hooks if each.name == "tick")
    assert {name: total.seconds for name, total in ticks.points.items()} == {
        "before_train": 1.0,
        "before_train_epoch": 1.0,
    }


def test_the_costs_of_many_removed_hooks_are_kept_together(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_FORMER", 2)
    runner = slow_runner(clock, steps=4)

    def tick(runner: Runner) -> None:
        clock.now += 1

    made = [partial(tick) for _ in range(5)]
    for number, function in enumerate(made):
        function.__name__ = f"tick {number}"  # type: ignore[attr-defined]  # as functions have it
        runner.on("before_train")(function)

    @runner.on("before_train_epoch")
    def remove(runner: Runner) -> None:
        for function in made:
            runner.remove_hook(function)

    runner.train()
    found = {each.name: each.total.seconds for each in runner.costs().hooks if each.total.seconds == each.total.calls}
    assert {name: seconds for name, seconds in found.items() if seconds} == {
        "tick 0": 1.0,
        "tick 1": 1.0,
        "other hooks that were removed": 3.0,
    }


def test_custom_and_undeclared_points_are_measured(clock: Clock) -> None:
    class Renders(Hook):
        def after_render(self) -> None:
            clock.now += 6

    runner = slow_runner(clock, steps=62, points={"after_render": ()})
    runner.register_hook(Renders())
    runner.on("after_train_iter")(lambda runner: runner.call_hook("after_render"))
    runner.train()
    found = next(each for each in runner.costs().hooks if each.name == "Renders")
    assert found.points["after_render"].seconds == 6.0 * 62


def test_a_second_training_and_a_resumed_one_begin_at_zero(clock: Clock, tmp_path: Path) -> None:
    first = slow_runner(clock, steps=4, work_dir=tmp_path / "run")
    first.train()
    again = slow_runner(clock, steps=4, work_dir=tmp_path / "run", resume=True)
    again.train_loop.max_epochs = 2
    again.train()
    costs = again.costs()
    assert (costs.first_step, costs.steps) == (4, 4)
    assert costs.parts["data"].seconds == 12.0


def test_measuring_changes_nothing_in_training(clock: Clock) -> None:
    plain, measured = toy_runner(max_epochs=20), toy_runner(max_epochs=20)
    measured.trace(measured.work_dir / "trace.json")
    plain.on("before_train_iter")(lambda runner: setattr(runner.plan.ledger, "next_turn", float("inf")))
    plain.train()
    measured.train()
    assert plain.costs().sampled_steps == 0
    assert measured.costs().sampled_steps == 80
    for one, other in zip(plain.model.parameters(), measured.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_samples_of_memory_and_costs_stay_few_in_a_long_run(clock: Clock) -> None:
    runner = slow_runner(clock)
    ledger, position = runner.plan.ledger, runner.position
    ledger.open(position)
    ledger.begin_steps()
    for _ in range(3000):
        position.iter = int(ledger.next_turn)
        clock.now += 60
        ledger.turn()
    assert ledger.sampled_steps == 1500
    assert SAMPLES / 2 <= len(ledger.memory) <= SAMPLES
    steps = [sample["step"] for sample in ledger.memory]
    assert steps == sorted(set(steps))
    assert steps[0] == 2
    ledger.close()
    assert ledger.memory[-1]["step"] == position.iter


def test_the_memory_that_a_hook_holds_is_found(clock: Clock) -> None:
    class Keeps(Hook):
        def __init__(self) -> None:
            self.kept: list[Any] = []
            self.model: Any = None

        def after_train_iter(self, runner: Runner) -> None:
            self.kept.append(torch.zeros(1000))
            self.model = runner.model

    runner = slow_runner(clock, Keeps(), steps=100)
    runner.train()
    data = runner.costs().to_dict()
    memory = {hook["name"]: hook["memory"] for hook in data["hooks"]}
    assert (memory["Keeps"]["tensors"], memory["Keeps"]["device"]) == (400_000, None)
    assert memory["LoggerHook"]["tensors"] == 0
    last = data["memory"][-1]
    held = sum(4 * parameter.numel() for parameter in runner.model.parameters())
    assert (last["step"], last["tensors"], last["device"]) == (100, 400_000 + held, None)
    assert last["resident"] > 1_000_000


def test_the_table_shows_hooks_points_and_parts(clock: Clock) -> None:
    class Two(Slow):
        def before_train(self) -> None:
            self.clock.now += 1

    runner = slow_runner(clock, Two(clock), steps=62)
    runner.train()
    lines = [line.split("│")[1:-1] for line in str(runner.costs()).splitlines() if "│" in line]
    rows = [[cell.strip() for cell in line] for line in lines]
    assert rows[0] == ["Two", "63", "187.00s", "25.5%", "2.97 s", "4.00 s", ""]
    assert rows[1] == ["after_train_iter", "62", "186.00s", "25.3%", "3.00 s", "4.00 s", ""]
    assert rows[2] == ["before_train", "1", "1.00s", "0.1%", "1.00 s", "1.00 s", ""]
    assert rows[-8:] == [
        ["data", "62", "186.00s", "25.3%", "3.00 s", "3.00 s", ""],
        ["forward", "62", "248.00s", "33.8%", "4.00 s", "4.00 s", ""],
        ["backward", "62", "62.00s", "8.4%", "1.00 s", "1.00 s", ""],
        ["optimizer", "62", "31.00s", "4.2%", "500.00 ms", "500.00 ms", ""],
        ["saving", "1", "0.00s", "0.0%", "0 µs", "0 µs", ""],
        ["validation", "1", "20.00s", "2.7%", "20.00 s", "20.00 s", ""],
        rows[-2],
        ["other", "", "0.00s", "0.0%", "", "", ""],
    ]
    assert "<td>Two</td>" in runner.costs()._repr_html_()

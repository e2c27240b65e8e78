"""TimeLimitHook: the exact iteration of the stop, the checkpoint, and the resumed run."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hookline import Hook, Runner
from hookline.checkpoint import store
from hookline.errors import ConfigError
from hookline.hooks import TimeLimitHook, time_limit
from hookline.hooks.time_limit import Times
from hookline.testing import toy_runner
from tests.clock import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace all clocks of a run, in a process that has just been started."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    monkeypatch.setattr(time_limit, "process_age", lambda: 0.0)
    return clock


class Passing(Hook):
    """Lets time pass in a step, a validation and a save."""

    priority = "HIGH"

    def __init__(self, clock: Clock, step: float = 10, val: float = 0, save: float = 0) -> None:
        self.clock, self.step, self.val, self.save = clock, step, val, save
        self.saves: list[int] = []

    def before_backward(self) -> None:
        self.clock.now += self.step

    def before_val_epoch(self) -> None:
        self.clock.now += self.val

    def before_save_checkpoint(self, runner: Runner) -> None:
        self.clock.now += self.save
        self.saves.append(runner.iter)


def run(clock: Clock, hook: TimeLimitHook | dict[str, Any], passing: Passing | None = None, **parts: Any) -> Runner:
    """Train by iterations, without validation and with a checkpoint only at the end, unless set otherwise."""
    if "max_epochs" not in parts:
        parts = {"max_iters": 50, "val": None, "default_hooks": {"checkpoint": {"interval": 0}}, **parts}
    runner = toy_runner(custom_hooks=[hook, passing or Passing(clock)], **parts)
    runner.train()
    return runner


def files(runner: Runner) -> list[str]:
    return sorted(path.name for path in runner.work_dir.glob("*.pth"))


# ------------------------------------------------------------------------------------------- when it stops


@pytest.mark.parametrize(
    ("limit", "margin", "step", "save", "stops_at", "saved"),
    [
        # 10 s per step: after 9 of them, the tenth just fits into 100 s.
        (100, 0, 10, 0, 10, [5, 10]),
        (99, 0, 10, 0, 9, [5, 9]),
        (100, 10, 10, 0, 9, [5, 9]),
        ("1m40s", "10.5s", 10, 0, 8, [5, 8]),
        # Half of the limit is over after 50 s. The save then takes 15 s, and 22.5 s are reserved for the last one.
        (100, 0, 10, 15, 6, [5, 6]),
        (120, 0, 10, 15, 8, [6, 8]),
        # 2 s per step, and a save of 4 s in the middle: 4 + 32 + 60, and 8 = 2 + 1.5 x 4 s are reserved.
        (100, 0, 2, 4, 45, [25, 45]),
        # Shorter than anything: one iteration in any case.
        (1, 0, 10, 0, 1, [1]),
        (1, 0, 10, 100, 1, [1]),
        # More than enough: training ends by itself.
        ("1h", 0, 10, 0, 50, [50]),
        (500, 0, 10, 0, 50, [25, 50]),
    ],
)
def test_it_stops_after_exactly_this_iteration_with_a_checkpoint(
    clock: Clock, limit: Any, margin: Any, step: float, save: float, stops_at: int, saved: list[int]
) -> None:
    passing = Passing(clock, step, save=save)
    runner = run(clock, TimeLimitHook(limit, margin), passing)
    assert (runner.iter, passing.saves) == (stops_at, saved)
    assert files(runner) == sorted(f"iter_{number}.pth" for number in saved)
    assert bool(runner.stopped.reason) is (stops_at < 50)


@pytest.mark.parametrize(("limit", "stops_at"), [(100, 9), (90, 9), (89, 6), (120, 12), (59, 3)])
def test_a_window_of_accumulation_is_one_piece(clock: Clock, limit: float, stops_at: int) -> None:
    runner = run(clock, TimeLimitHook(limit), accumulate=3)
    assert (runner.iter, runner.optims.sole.micro) == (stops_at, 0)
    assert runner.stopped.reason.endswith("and 30s are reserved for the next iteration and a save")


@pytest.mark.parametrize(
    ("limit", "epochs", "iters", "validations", "waits_for"),
    [
        # An epoch is 40 s, the first validation ends after 90 s, the second would end after 180 s.
        (1000, 5, 20, 5, ""),
        (170, 2, 8, 1, "the validation"),
        (179, 2, 8, 1, "the validation"),
        (180, 2, 8, 2, "the next iteration"),
        (190, 2, 9, 2, "the next iteration"),
        (209, 2, 10, 2, "the next iteration"),
        (100, 1, 5, 1, "the next iteration"),
        # Each of its first two batches is assumed to take 10 s.
        (59, 1, 4, 0, "the validation"),
        (60, 1, 4, 1, "the next iteration"),
        (39, 0, 3, 0, "the next iteration"),
    ],
)
def test_a_validation_that_is_due_has_to_fit(
    clock: Clock, limit: float, epochs: int, iters: int, validations: int, waits_for: str
) -> None:
    runner = run(clock, TimeLimitHook(limit), Passing(clock, val=50), max_epochs=5)
    at = runner.position
    assert (at.epoch, at.iter, at.validations) == (epochs, iters, validations)
    assert (f"reserved for {waits_for} and a save" in runner.stopped.reason) if waits_for else not runner.stopped
    assert f"epoch_{epochs}.pth" in files(runner) or f"iter_{iters}.pth" in files(runner)


@pytest.mark.parametrize(
    ("limit", "iters", "validations"), [(80, 4, 1), (89, 4, 1), (90, 4, 2), (99, 4, 2), (100, 5, 2)]
)
def test_by_iterations_a_validation_has_to_fit_too(clock: Clock, limit: float, iters: int, validations: int) -> None:
    parts: dict[str, Any] = {"max_iters": 50, "train": {"val_interval": 2}, "max_epochs": None}
    runner = run(clock, TimeLimitHook(limit), Passing(clock, val=25), **parts)
    assert (runner.iter, runner.validations) == (iters, validations)


def test_saves_that_were_asked_for_have_to_fit_with_the_last_one(clock: Clock) -> None:
    # Saves of 20 s after 2, 4, ... iterations. After 8, 140 s have passed: a save, an iteration and 1.5 saves are 60 s.
    for limit, stops_at in ((200, 9), (199, 8), (160, 7), (159, 6), (99, 4)):
        passing = Passing(clock, save=20)
        parts: dict[str, Any] = {"default_hooks": {"checkpoint": {"interval": 2}}}
        runner = run(clock, TimeLimitHook(limit), passing, **parts)
        assert (limit, runner.iter) == (limit, stops_at)
        assert passing.saves == [*range(2, stops_at + 1, 2), *[stops_at] * (stops_at % 2)]


def test_slow_iterations_count_as_long_as_they_are_recent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "RECENT", 3)
    times, found = Times(), []
    for seconds in (9, 1, 2, 3, 1, 1, 1, 2, 1, 1):
        times.add(seconds)
        found.append(times.longest)
    assert found == [9, 9, 9, 9, 9, 9, 3, 3, 3, 2]


def test_the_reason_says_what_has_passed_the_limit_and_what_is_kept(clock: Clock) -> None:
    runner = run(clock, TimeLimitHook("1h30m", margin="2m"), Passing(clock, step=600.5, save=30))
    # Half of it is over after 5 iterations, when the first save happens.
    reason = "1h20m34s of 1h30m have passed, and 12m45s are reserved for the next iteration and a save"
    assert (runner.iter, runner.stopped.reason, runner.stopped.for_now) == (8, reason, True)
    assert f"stopped by TimeLimitHook: {reason}" in (runner.work_dir / "run.log").read_text()


# ------------------------------------------------------------------------------------------- start of the time


def test_the_budget_counts_from_the_start_of_the_process_or_of_the_run(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limit, "process_age", lambda: 60.0)
    assert run(clock, TimeLimitHook(100)).iter == 4
    assert run(clock, TimeLimitHook(100, start="run")).iter == 10
    monkeypatch.setattr(time_limit, "process_age", lambda: 5000.0)
    runner = run(clock, TimeLimitHook(100))
    assert (runner.iter, files(runner)) == (1, ["iter_1.pth"])


def test_the_system_reports_the_age_of_this_process() -> None:
    before = time_limit.process_age()
    assert 0 < before <= time_limit.process_age() < 86400


def test_every_start_of_a_runner_has_its_full_budget_when_counting_from_the_run(clock: Clock) -> None:
    hook = TimeLimitHook(100, start="run")
    runner = run(clock, hook)
    assert runner.iter == 10
    runner._host.requests.resume_training()
    runner.train()
    assert runner.iter == 20


# ------------------------------------------------------------------------------------------- the checkpoint


@pytest.mark.parametrize("checkpoint", [{"save_last": False, "interval": 0}, None, {"interval": 0}, {"interval": 3}])
def test_the_last_checkpoint_is_saved_once_with_any_checkpoint_settings(clock: Clock, checkpoint: Any) -> None:
    passing = Passing(clock)
    runner = run(clock, TimeLimitHook(80), passing, default_hooks={"checkpoint": checkpoint})
    assert runner.iter == 8
    assert passing.saves == ([3, 4, 6, 8] if checkpoint == {"interval": 3} else [4, 8])
    assert runner.saving.saved_at == 8
    saved = store.read(runner.work_dir / "iter_8.pth", sealed=True)
    assert saved["position"]["stopped"] == runner.stopped.reason


def test_old_checkpoints_are_removed_as_the_checkpoint_hook_is_configured(clock: Clock) -> None:
    checkpoint = {"interval": 3, "max_keep_ckpts": 1}
    runner = run(clock, TimeLimitHook(80), default_hooks={"checkpoint": checkpoint})
    assert files(runner) == ["iter_8.pth"]


def test_a_save_beside_the_training_tells_how_long_it_took_too(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    go, write = threading.Event(), store.write

    def slow(*given: Any) -> str:
        assert go.wait(60)
        clock.now += 15
        return write(*given)

    monkeypatch.setattr(store, "write", slow)
    checkpoint = {"interval": 2, "async_save": True, "save_last": False}
    runner = toy_runner(max_iters=3, val=None, default_hooks={"checkpoint": checkpoint})
    seen: list[tuple[bool, float, float]] = []

    @runner.on("before_train_iter")
    def look(runner: Runner) -> None:
        seen.append((runner.saving.busy, runner.saving.seconds, runner.saving.took))
        if runner.iter == 2:
            go.set()
            runner.saving.finish()
            seen.append((runner.saving.busy, runner.saving.seconds, runner.saving.took))

    runner.train()
    assert seen == [(False, 0, 0), (False, 0, 0), (True, 0, 0), (False, 0, 15)]


# ------------------------------------------------------------------------------------------- resuming


@pytest.mark.parametrize("limit", [35, 70, 100, 145])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_resumed_run_has_a_full_budget_and_ends_like_an_uninterrupted_one(
    clock: Clock, tmp_path: Path, limit: float, accumulate: int
) -> None:
    whole = toy_runner(max_epochs=3, accumulate=accumulate, work_dir=tmp_path / "whole")
    whole.train()
    stops = []
    for _ in range(12):
        passing = Passing(clock, val=15)
        parts: dict[str, Any] = {"max_epochs": 3, "accumulate": accumulate, "resume": True}
        runner = run(clock, TimeLimitHook(limit), passing, work_dir=tmp_path / "parts", **parts)
        if not runner.stopped.reason:
            break
        stops.append(runner.iter)
    assert stops == sorted(set(stops))
    assert stops
    assert runner.position == whole.position
    assert (runner.epoch, runner.iter, runner.validations) == (3, 12, 3)
    for name, value in whole.model.state_dict().items():
        assert value.equal(runner.model.state_dict()[name])
    steps = [
        [
            line.split('"step": ')[1].split(",")[0]
            for line in (tmp_path / kind / "metrics.jsonl").read_text().splitlines()
        ]
        for kind in ("whole", "parts")
    ]
    assert steps[0] == steps[1]


def test_a_validation_before_the_first_iteration_stops_nothing(clock: Clock) -> None:
    parts: dict[str, Any] = {"max_epochs": 2, "train": {"val_begin": 0}}
    runner = run(clock, TimeLimitHook(20), Passing(clock, val=50), **parts)
    assert (runner.iter, runner.validations) == (1, 1)


def test_a_run_that_was_stopped_for_good_is_not_stopped_for_now(clock: Clock) -> None:
    runner = toy_runner(max_iters=9, val=None, custom_hooks=[TimeLimitHook(20), Passing(clock)])
    runner.on("after_train_iter", every=2)(lambda runner: runner.stop("enough"))
    runner.train()
    assert (runner.iter, runner.stopped.reason, runner.stopped.for_now) == (2, "enough", False)


def test_a_stop_that_waits_for_the_end_of_a_long_epoch_is_not_waited_for(clock: Clock) -> None:
    runner = toy_runner(max_epochs=2, batches=9, val=None, custom_hooks=[TimeLimitHook(50), Passing(clock)])
    runner.on("after_train_iter")(lambda runner: runner.stop("enough", when="epoch"))
    runner.train()
    assert (runner.iter, files(runner), runner.stopped.for_now) == (5, ["iter_3.pth", "iter_5.pth"], True)


# ------------------------------------------------------------------------------------------- odd starts and ends


def test_val_and_test_alone_are_not_limited(clock: Clock) -> None:
    runner = toy_runner(custom_hooks=[TimeLimitHook(1), Passing(clock, val=50)])
    runner.val()
    runner.test()
    for point in ("before_run", "before_val", "after_val"):
        assert "TimeLimitHook" not in [call.who for call in runner.plan.calls_at(point)]
    assert files(runner) == []


def test_registered_while_training_it_counts_from_the_process(clock: Clock) -> None:
    runner = toy_runner(max_iters=50, val=None, custom_hooks=[Passing(clock)])

    @runner.on("before_train_iter")
    def register(runner: Runner) -> None:
        if runner.iter == 3:
            runner.register_hook(TimeLimitHook(100))

    runner.train()
    # It is called for the first time after iteration 4, and stops after ten more.
    assert runner.iter == 14


def test_a_failing_step_is_not_stopped_by_it_and_the_next_start_is_as_any(clock: Clock) -> None:
    fails = [True]
    runner = toy_runner(max_iters=50, val=None, custom_hooks=[TimeLimitHook(100, start="run"), Passing(clock)])

    @runner.on("after_backward")
    def fail(runner: Runner) -> None:
        if runner.iter == 3 and fails.pop():
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        runner.train()
    fails.append(False)
    clock.now += 1000
    runner.train()
    assert runner.iter == 13


# ------------------------------------------------------------------------------------------- constructing

WRONG: list[Any] = ["", " ", "90", "11:50", "11h50", "50m11h", "-5m", "5 m", "1w", "h", "1e3s", -1, True, None]
WRONG += [float("nan"), float("inf")]
LENGTH = "must be a duration such as '11h50m', '1d2h', '45m' or '90s', or a number of seconds"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        *[({"limit": wrong}, f"limit {LENGTH}, not {wrong!r}") for wrong in WRONG],
        ({"limit": "5m", "margin": "soon"}, f"margin {LENGTH}, not 'soon'"),
        ({"limit": 0}, "limit must be greater than the margin of '0s', not 0"),
        ({"limit": "5m", "margin": 300}, "limit must be greater than the margin of 300, not '5m'"),
        ({"limit": "5m", "start": "now"}, "start cannot be 'now'; available: process, run"),
    ],
)  # fmt: skip
def test_wrong_parameters_are_refused_with_an_example(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TimeLimitHook(**parameters)
    assert str(refused.value) == f"TimeLimitHook: {message}"


def test_a_config_names_it_and_it_comes_last(clock: Clock) -> None:
    runner = run(clock, {"type": "TimeLimitHook", "limit": "1m40s", "start": "run"})
    assert [entry.name for entry in runner.plan][-1] == "TimeLimitHook"
    assert runner.iter == 10


def test_a_resumed_run_remembers_how_long_saves_and_validations_take() -> None:
    hook, other = TimeLimitHook("1h"), TimeLimitHook("1h")
    toy_runner(custom_hooks=[hook]).train()
    state = hook.state_dict()
    assert state["save"] > 0
    assert state["validation"] > 0
    other.load_state_dict(state)
    assert other.state_dict() == state

"""What a run never reaches is reported before training: hooks, frequencies and intervals, by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hookline import EvalLoop, Hook, Milestone, Runner, TrainLoop, every
from hookline.checks.reach import Lengths
from hookline.engine.metrics import accuracy
from hookline.engine.steps import cross_entropy, predict
from hookline.hooks import (
    CheckInvalidLossHook,
    EvaluateHook,
    GradNormHook,
    ProfilerHook,
    StatsMonitorHook,
    VisualizationHook,
)
from hookline.testing import toy_data, toy_runner

NO_TEST: dict[str, Any] = {"test": None}
TEST = EvalLoop(toy_data(2), predict, metrics={"accuracy": accuracy})
ADD = "add `val` to the Runner or to the config, or remove the hook"


def warned(runner: Runner) -> list[str]:
    """Train, and return the warnings."""
    runner.train()
    lines = (runner.work_dir / "run.log").read_text().splitlines()
    return [line.partition("warning: ")[2] for line in lines if "warning: " in line]


def with_function(point: str, often: Any, **parts: Any) -> list[str]:
    runner = toy_runner(**parts)

    def show(runner: Runner) -> Any:
        if point.startswith("around_"):
            yield

    def call(runner: Runner) -> None:
        """Do nothing."""

    function = show if point.startswith("around_") else call
    function.__name__ = "show"
    runner.on(point, every=often)(function)
    return warned(runner)


# -- functions with a frequency


@pytest.mark.parametrize(
    ("point", "often", "parts", "message"),
    [
        (
            "after_train_iter",
            9,
            {},
            "show is never called at after_train_iter: every=9, but this run has 8 iterations; use every=8 or less",
        ),
        ("after_train_iter", 8, {}, ""),
        (
            "around_train_iter",
            "3ep",
            {},
            "show is never called at around_train_iter: every='3ep', but this run has 2 epochs",
        ),
        ("after_train_iter", "2ep", {}, ""),
        (
            "after_train_iter",
            "2ep",
            {"max_iters": 7},
            "show is never called at after_train_iter: every='2ep', but this run has 1 epoch",
        ),
        ("after_train_iter", "2ep", {"max_iters": 8}, ""),
        (
            "before_train_epoch",
            3,
            {},
            "show is never called at before_train_epoch: every=3, but this run has 2 epochs; use every=2 or less",
        ),
        (
            "after_train_epoch",
            2,
            {"max_iters": 8},
            "show is never called at after_train_epoch: every=2 counts epochs, but training by iterations calls this "
            "point only once",
        ),
        (
            "after_optimizer_step",
            3,
            {"accumulate": 4},
            "show is never called at after_optimizer_step: every=3, but this run has 2 optimizer steps; use every=2 or "
            "less",
        ),
        ("before_optimizer_step", 4, {"accumulate": 3}, ""),  # an epoch of four batches has two windows
        (
            "before_optimizer_step",
            4,
            {"accumulate": 3, "max_iters": 8},
            "show is never called at before_optimizer_step: every=4, but this run has 3 optimizer steps; use every=3 "
            "or less",
        ),
        (
            "after_val_epoch",
            3,
            {},
            "show is never called at after_val_epoch: every=3, but this run has 2 validations; use every=2 or less",
        ),
        ("after_val_epoch", 3, {"train": {"val_begin": 0}}, ""),
        (
            "after_val_epoch",
            "3ep",
            {"max_epochs": 5, "train": {"val_interval": 2}},
            "show is never called at after_val_epoch: every='3ep', but this run validates after no such epoch",
        ),
        ("after_val_epoch", "5ep", {"max_epochs": 5, "train": {"val_interval": 2}}, ""),
        ("after_val_epoch", "4ep", {"max_epochs": 5, "train": {"val_interval": 2}}, ""),
        (
            "after_val_epoch",
            "2ep",
            {"max_epochs": 5, "train": {"val_interval": 2, "val_begin": 5}},
            "show is never called at after_val_epoch: every='2ep', but this run validates after no such epoch",
        ),
        (
            "after_val_iter",
            3,
            {},
            "show is never called at after_val_iter: every=3, but the longest data set of val has 2 batches; use "
            "every=2 or less",
        ),
        (
            "after_test_iter",
            3,
            {},
            "show is never called at after_test_iter: every=3, but the longest data set of test has 2 batches; use "
            "every=2 or less",
        ),
    ],
)
def test_a_function_that_is_never_due_is_named(point: str, often: Any, parts: dict[str, Any], message: str) -> None:
    assert with_function(point, often, **parts) == ([message] if message else [])


def test_an_unknown_length_reports_nothing() -> None:
    class Stream:
        def __iter__(self) -> Iterator[Any]:
            yield from toy_data(4)

    def run(**parts: Any) -> list[str]:
        train = TrainLoop(Stream(), cross_entropy, max_epochs=1)
        runner = toy_runner(val=EvalLoop(Stream(), predict, metrics={"accuracy": accuracy}))
        runner._host.replace_training(train)
        for point in ("after_train_iter", "after_optimizer_step", "after_val_iter"):
            runner.on(point, every=1000)(lambda runner: None)
        return warned(runner)

    assert run() == []


def test_a_step_that_calls_update_decides_how_often() -> None:
    def step(model: Any, batch: Any, optim: Any) -> None:
        for _ in range(9):
            optim.update(cross_entropy(model, batch))

    assert with_function("after_optimizer_step", 72, step=step) == []


def test_a_hook_that_requests_validations_makes_their_number_unknown() -> None:
    class Asks(Hook):
        def after_train_iter(self, runner: Runner) -> None:
            """Ask, in a function of its own."""
            (lambda: runner.request_val())()

    assert with_function("after_val_epoch", 3) != []
    assert with_function("after_val_epoch", 3, custom_hooks=[Asks()]) == []


def test_a_resumed_run_reports_what_the_whole_run_never_reaches(tmp_path: Path) -> None:
    assert with_function("after_train_iter", 7, max_epochs=1, work_dir=tmp_path) != []
    (tmp_path / "run.log").unlink()
    assert with_function("after_train_iter", 7, max_epochs=2, work_dir=tmp_path, resume=True) == []
    (tmp_path / "run.log").unlink()
    assert with_function("after_train_iter", 7, max_epochs=2, work_dir=tmp_path, resume=True) == []


# -- methods, and hooks without their stage


def test_a_method_that_is_never_due_is_named_unless_the_hook_also_works_at_the_end() -> None:
    class Rare(Hook):
        def before_train(self) -> None:
            """Prepare."""

        @every(100)
        def after_train_iter(self) -> None:
            """Do something now and then."""

    class AlsoAtTheEnd(Rare):
        def after_train(self) -> None:
            """Do it once more."""

    assert warned(toy_runner(custom_hooks=[Rare(), AlsoAtTheEnd()])) == [
        "Rare.after_train_iter is never called: every=100, but this run has 8 iterations; use every=8 or less"
    ]


def test_a_hook_of_evaluations_is_named_in_a_run_without_them() -> None:
    class Looks(Hook):
        def before_val(self) -> None:
            """Prepare."""

        def after_test_epoch(self) -> None:
            """Look."""

    class Tests(Hook):
        def after_test_epoch(self) -> None:
            """Look."""

    class Mixed(Looks):
        def before_train(self) -> None:
            """Prepare."""

    hooks = [Looks(), Tests(), Mixed()]
    assert warned(toy_runner(val=None, test=None, custom_hooks=hooks)) == [
        f"Looks is never called, because this run has no validation; {ADD}",
        "Tests is never called, because this run has no test; add `test` to the Runner or to the config, or remove "
        "the hook",
    ]
    assert warned(toy_runner(val=None, test=TEST, custom_hooks=[Looks(), Tests()])) == []
    assert warned(toy_runner(test=None, custom_hooks=[Looks()])) == []


def test_a_hook_of_the_user_can_say_what_it_waits_for() -> None:
    class Counts(Hook):
        def must_reach(self, runner: Runner) -> list[Milestone]:
            """Return the first iteration at which it does something."""
            return [Milestone("warmup", 20, 20, "iteration", "it never counts")]

        def after_train_iter(self) -> None:
            """Count."""

    assert warned(toy_runner(custom_hooks=[Counts()])) == [
        "Counts: warmup=20 needs 20 iterations, but this run has 8, so it never counts; set warmup to at most 8, or "
        "train longer"
    ]


# -- hookline's own hooks


@pytest.mark.parametrize(
    ("hook", "parts", "message"),
    [
        (
            VisualizationHook(function=lambda outputs: None),
            {"val": None, **NO_TEST},
            f"VisualizationHook: it needs 1 validation or test, but this run has none, so it shows nothing; {ADD}",
        ),
        (VisualizationHook(function=lambda outputs: None), {"val": None, "test": TEST}, ""),
        (
            VisualizationHook(3, function=lambda outputs: None),
            {},
            "VisualizationHook: interval=3 needs 3 validations, but this run has 2, so it shows no validation; set "
            "interval to at most 2, or train longer",
        ),
        (
            GradNormHook(),
            {},
            "GradNormHook.before_optimizer_step is never called: interval=50, but this run has 8 optimizer steps; use "
            "interval=8 or less",
        ),
        (CheckInvalidLossHook(interval=50), {}, ""),  # the losses are checked at the end
        (StatsMonitorHook(), {}, ""),
        (
            StatsMonitorHook(epoch_log_freq=3),
            {},
            "StatsMonitorHook: step_log_freq=512 needs 512 iterations, but this run has 8, and epoch_log_freq=3 needs "
            "3 epochs, but this run has 2, so nothing is recorded; set step_log_freq to at most 8, or train longer",
        ),
        (EvaluateHook(lambda: 1.0, interval=3), {}, ""),
        (
            EvaluateHook(lambda: 1.0, interval=3, at_end=False),
            {},
            "EvaluateHook: interval=3 needs 3 epochs, but this run has 2, so the function is never called; set "
            "interval to at most 2, or train longer",
        ),
        (
            EvaluateHook(lambda: 1.0, interval=9, by_epoch=False, at_end=False),
            {},
            "EvaluateHook: interval=9 needs 9 iterations, but this run has 8, so the function is never called; set "
            "interval to at most 8, or train longer",
        ),
        (
            ProfilerHook(schedule={"wait": 4, "warmup": 4, "active": 1}, profile_times=9),
            {},
            "ProfilerHook: it needs 9 iterations, but this run has 8, so nothing is profiled; train longer, or remove "
            "the hook",
        ),
        (
            ProfilerHook(stages=["test"]),
            NO_TEST,
            "ProfilerHook: it needs 1 test, but this run has none, so nothing is profiled; add `test` to the "
            "Runner or to the config, or remove the hook",
        ),
    ],
)
def test_a_hook_with_its_own_counter_warns_if_it_never_acts(hook: Hook, parts: dict[str, Any], message: str) -> None:
    found = [line for line in warned(toy_runner(custom_hooks=[hook], **parts)) if "keeps images" not in line]
    assert [line for line in found if "there is no trace of train" not in line] == ([message] if message else [])


@pytest.mark.parametrize(
    ("saving", "parts", "message"),
    [
        ({"interval": 3}, {}, ""),  # the last one is saved
        (
            {"interval": 3, "save_last": False},
            {},
            "CheckpointHook: interval=3 needs 3 epochs, but this run has 2, so nothing is saved; set interval to at "
            "most 2, or train longer",
        ),
        (
            {"interval": 1, "save_begin": 9, "save_last": False, "by_epoch": False, "save_best": "accuracy"},
            {},
            "CheckpointHook: save_begin=9 needs 9 iterations, but this run has 8, so only the best checkpoints are "
            "saved; set save_begin to at most 8, or train longer",
        ),
        (
            {"save_last": False},
            {"max_iters": 6, "val": None},
            "CheckpointHook: interval=1000 needs 1000 iterations, but this run has 6, so nothing is saved; set "
            "interval to at most 6, or train longer",
        ),
        ({"interval": 0, "save_last": False}, {}, ""),  # turned off
    ],
)
def test_checkpoints_that_are_never_saved_are_reported(
    saving: dict[str, Any], parts: dict[str, Any], message: str
) -> None:
    assert warned(toy_runner(default_hooks={"checkpoint": saving}, **parts)) == ([message] if message else [])


def test_the_default_hooks_of_a_tiny_run_report_nothing() -> None:
    assert warned(toy_runner(max_epochs=1, batches=1)) == []
    assert warned(toy_runner(max_iters=1, batches=1)) == []
    assert warned(toy_runner(max_iters=1, val=None, test=None)) == []


# -- the interval of validation


@pytest.mark.parametrize(
    ("train", "parts", "message"),
    [
        ({}, {"max_iters": 8}, ""),
        ({"val_interval": 2}, {}, ""),
        (
            {"val_interval": 3},
            {},
            "train: val_interval=3 is never reached, because this run has 2 epochs, so it validates only at its end; "
            "set val_interval to at most 2, or train longer",
        ),
        (
            {"val_begin": 9},
            {"max_iters": 8},
            "train: val_begin=9 is never reached, because this run has 8 iterations, so it validates only at its end; "
            "set val_begin to at most 8, or train longer",
        ),
        (
            {"val_interval": 2},
            {"val": None},
            "train: val_interval=2 has no effect, because this run has no validation",
        ),
        ({}, {"val": None}, ""),
    ],
)
def test_a_setting_of_validation_without_an_effect_is_reported(
    train: dict[str, Any], parts: dict[str, Any], message: str
) -> None:
    assert warned(toy_runner(train=train, **parts)) == ([message] if message else [])


@pytest.mark.parametrize("begin", [0, 1, 3, 8])
@pytest.mark.parametrize("interval", [1, 2, 3, 9])
@pytest.mark.parametrize("length", [{"max_epochs": 4}, {"max_iters": 7}])
def test_the_number_of_validations_is_known_before(begin: int, interval: int, length: dict[str, Any]) -> None:
    runner = toy_runner(batches=1, train={"val_begin": begin, "val_interval": interval}, **length)
    lengths = Lengths.of(runner._host)
    runner.train()
    assert lengths.validation == runner.validations


# -- a dry run


def test_a_shortened_run_reports_only_what_the_whole_run_never_reaches() -> None:
    runner = toy_runner(max_epochs=10)
    runner.on("after_train_iter", every=40)(lambda runner: None)
    runner.on("after_val_epoch", every=10)(lambda runner: None)
    late = lambda runner: None  # noqa: E731  # a function
    late.__name__ = "late"
    runner.on("after_train_iter", every=41)(late)
    batches = Lengths.of(runner._host).batches
    runner._host.shorten(1)
    runner._host.shorten(2)  # the first plan is remembered
    assert Lengths.of(runner._host).batches == batches == {"val": 2, "test": 2}
    assert warned(runner) == [
        "late is never called at after_train_iter: every=41, but this run has 40 iterations; use every=40 or less"
    ]
    assert runner.iter == 1

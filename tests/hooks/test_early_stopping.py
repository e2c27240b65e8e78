"""EarlyStoppingHook: the exact validation at which it stops, why, and what a resume remembers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from hookline import EvalLoop, Hook, Runner
from hookline.engine.metrics import accuracy
from hookline.engine.steps import predict
from hookline.errors import ConfigError
from hookline.hooks import EarlyStoppingHook
from hookline.testing import MemoryWriter, toy_data, toy_runner


class Given(Hook):
    """Returns metrics that are set by hand, one value per validation."""

    priority = "HIGHEST"

    def __init__(self, values: list[Any], name: str = "accuracy") -> None:
        self.values = values
        self.name = name

    def after_val_epoch(self, runner: Runner, metrics: dict[str, Any]) -> None:
        metrics.clear()
        metrics["odd"] = 1.0
        if (value := self.values[runner.validations]) is not None:
            metrics[self.name] = value


def run(values: list[Any], hook: EarlyStoppingHook | dict[str, Any], **parts: Any) -> Runner:
    """Train as many epochs as there are values. An epoch has two iterations."""
    name = hook.best.monitor.name if isinstance(hook, EarlyStoppingHook) else hook["monitor"]
    parts.setdefault("max_epochs", len(values))
    runner = toy_runner(batches=2, custom_hooks=[hook, Given(values, name)], **parts)
    runner.train()
    return runner


def plain_stop(values: list[float], greater: bool, min_delta: float, patience: int) -> int:
    """Return after how many validations a run stops, computed by hand. If it does not, return all of them."""
    best, waited = -math.inf, 0
    for number, value in enumerate(values, 1):
        signed = value if greater else -value
        if signed > best + min_delta:
            best, waited = signed, 0
        else:
            waited += 1
        if waited == patience:
            return number
    return len(values)


CURVES = [
    [0.1, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3],
    [0.5, 0.4, 0.45, 0.5, 0.51, 0.2, 0.1, 0.3],
    [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8],
    [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2],
    [0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25],
]


@pytest.mark.parametrize("patience", [1, 2, 3])
@pytest.mark.parametrize("min_delta", [0.0, 0.125])
@pytest.mark.parametrize("rule", ["greater", "less"])
@pytest.mark.parametrize("values", CURVES)
def test_it_stops_after_exactly_this_validation(
    values: list[float], rule: str, min_delta: float, patience: int
) -> None:
    runner = run(values, EarlyStoppingHook("score", rule, min_delta, patience=patience))
    stops = plain_stop(values, rule == "greater", min_delta, patience)
    assert (runner.epoch, runner.iter) == (stops, stops * 2)


@pytest.mark.parametrize(
    ("values", "parameters", "epoch", "reason"),
    [
        (
            [0.1, 0.912345678, 0.9, 0.9, 0.9],
            {"patience": 2},
            4,
            "accuracy has not improved for 2 validations; the best was 0.912346 at epoch 2",
        ),
        (
            [0.5, 0.5, 0.5],
            {"patience": 1},
            2,
            "accuracy has not improved for 1 validation; the best was 0.5 at epoch 1",
        ),
        (
            [0.5, math.nan, 0.9],
            {},
            2,
            "accuracy became nan; the best was 0.5 at epoch 1",
        ),
        ([math.inf, 0.9], {}, 1, "accuracy became inf; there was no best value"),
        (
            [0.8, 0.9, 0.95, 0.99],
            {"stopping_threshold": 0.9},
            3,
            "accuracy has passed 0.9; the best was 0.95 at epoch 3",
        ),
        ([0.9, 0.9, 0.9], {"stopping_threshold": 0.9}, 3, ""),
        ([math.nan, math.nan, math.nan], {"check_finite": False}, 3, ""),
        (
            [math.nan, 0.1, math.nan, math.nan, 0.5],
            {"check_finite": False, "patience": 2},
            4,
            "accuracy has not improved for 2 validations; the best was 0.1 at epoch 2",
        ),
    ],
)
def test_the_reason_says_metric_best_value_and_when(
    values: list[float], parameters: dict[str, Any], epoch: int, reason: str
) -> None:
    runner = run(values, EarlyStoppingHook("accuracy", **parameters))
    assert (runner.epoch, runner.stopped.reason) == (epoch, reason)
    log = (runner.work_dir / "run.log").read_text()
    assert (f"stopped by EarlyStoppingHook: {reason}" in log) if reason else ("stopped" not in log)


def test_a_threshold_for_less_is_passed_downwards() -> None:
    runner = run([0.5, 0.2, 0.1, 0.0], EarlyStoppingHook("loss", stopping_threshold=0.2))
    assert (runner.epoch, runner.stopped.reason) == (3, "loss has passed 0.2; the best was 0.1 at epoch 3")


def test_by_iterations_the_reason_counts_iterations() -> None:
    runner = run([0.5, 0.5, 0.5], EarlyStoppingHook("accuracy", patience=1), max_epochs=None, max_iters=9,
                 train={"val_interval": 3})  # fmt: skip
    assert runner.iter == 6
    assert runner.stopped.reason == "accuracy has not improved for 1 validation; the best was 0.5 at iteration 3"


def test_a_validation_in_the_middle_of_an_epoch_is_named_by_its_iteration() -> None:
    hook = EarlyStoppingHook("accuracy", patience=1)
    runner = toy_runner(max_epochs=2, batches=3, custom_hooks=[hook, Given([0.5, 0.4])])
    runner.on("after_train_iter")(lambda runner: runner.request_val() if runner.iter == 1 else None)
    runner.train()
    assert (runner.epoch, runner.iter) == (1, 3)
    assert runner.stopped.reason == "accuracy has not improved for 1 validation; the best was 0.5 at iteration 2"


# ------------------------------------------------------------------------------------------------- missing metrics


def test_a_metric_that_is_missing_is_warned_about_once_and_ignored() -> None:
    runner = run([None, 0.5, None, 0.4, 0.4, 0.4], EarlyStoppingHook("accuracy", patience=2))
    assert runner.epoch == 5
    log = (runner.work_dir / "run.log").read_text()
    warning = (
        "warning: EarlyStoppingHook: validation returns no metric 'accuracy'; available: odd (early stopping has no "
        "effect)"
    )
    assert log.count(warning) == 1


def test_if_strict_a_metric_that_a_later_validation_lacks_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        run([0.5, None], EarlyStoppingHook("accuracy", strict=True))
    assert str(refused.value) == "EarlyStoppingHook: validation returns no metric 'accuracy'; available: odd"


@pytest.mark.parametrize("strict", [False, True])
def test_a_name_that_no_validation_gives_is_refused_before_the_first_step(strict: bool) -> None:
    runner = toy_runner(custom_hooks=[EarlyStoppingHook("acuracy", "greater", strict=strict)])
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert runner.iter == 0
    assert str(refused.value) == ("EarlyStoppingHook: validation returns no metric 'acuracy'; did you mean 'accuracy'?")


@pytest.mark.parametrize("strict", [False, True])
def test_without_validation_it_is_refused(strict: bool) -> None:
    hooks = [EarlyStoppingHook("accuracy", strict=strict), Given([])]
    with pytest.raises(ConfigError) as refused:
        toy_runner(val=None, custom_hooks=hooks).train()
    assert str(refused.value) == (
        "EarlyStoppingHook needs the metric 'accuracy', but this run has no validation; add `val` to the "
        "Runner or to the config"
    )


def test_a_metric_that_a_hook_may_add_is_not_refused_unless_it_is_an_observer() -> None:
    class Adds(Hook):
        def after_val_epoch(self, runner: Runner, metrics: dict[str, Any]) -> None:
            """Add a metric."""
            metrics["error"] = 1 - metrics["accuracy"]

    hook = EarlyStoppingHook("error")
    toy_runner(custom_hooks=[hook, Adds()]).train()
    assert hook.best.value is not None
    Adds.role = "observer"  # it says that it only looks
    with pytest.raises(ConfigError, match="^EarlyStoppingHook: validation returns no metric 'error'; available: accur"):
        toy_runner(custom_hooks=[EarlyStoppingHook("error"), Adds()]).train()


@pytest.mark.parametrize(("parameters", "said"), [({}, True), ({"stopping_threshold": 0.9}, False)])
def test_a_patience_that_is_longer_than_the_run_is_reported(parameters: dict[str, Any], said: bool) -> None:
    runner = toy_runner(max_epochs=3, custom_hooks=[EarlyStoppingHook("accuracy", patience=3, **parameters)])
    runner.train()
    warning = (
        "warning: EarlyStoppingHook: patience=3 needs 4 validations, but this run has 3, so it never stops a run that "
        "does not improve; set patience to at most 2, or train longer"
    )
    assert (warning in (runner.work_dir / "run.log").read_text()) == said


def test_a_metric_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="the metric 'accuracy' is a Tensor of shape .3,., not a number"):
        run([torch.zeros(3)], EarlyStoppingHook("accuracy"))


def test_a_real_metric_is_watched_too() -> None:
    loop = EvalLoop(toy_data(1), predict, metrics={"accuracy": lambda preds, target: 0.5})
    runner = toy_runner(max_epochs=9, val=loop, custom_hooks=[EarlyStoppingHook("accuracy", patience=2)])
    runner.train()
    assert runner.epoch == 3


# ------------------------------------------------------------------------------------------- saving and resuming


def state_of(runner: Runner) -> dict[str, Any]:
    return next(hook.state_dict() for hook in runner.hooks if isinstance(hook, EarlyStoppingHook))


VALUES = [0.1, 0.4, 0.3, 0.3, 0.5, 0.4, 0.4, 0.4, 0.9]


@pytest.mark.parametrize("dies_at", [5, 7, 10, 13, 14, 15])
@pytest.mark.parametrize("point", ["after_train_iter", "before_val", "after_val"])
def test_best_value_and_patience_survive_a_resume(tmp_path: Path, dies_at: int, point: str) -> None:
    whole = run(VALUES, EarlyStoppingHook("accuracy", patience=3), work_dir=tmp_path / "whole")
    hooks = [EarlyStoppingHook("accuracy", patience=3), Given(VALUES)]
    broken = toy_runner(max_epochs=9, batches=2, custom_hooks=hooks, work_dir=tmp_path / "broken")

    @broken.on(point)
    def die(runner: Runner) -> None:
        if runner.iter == 3:
            runner.request_save()  # also in the middle of an epoch
        if runner.iter >= dies_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken.train()
    again = EarlyStoppingHook("accuracy", patience=3)
    resumed = run(VALUES, again, work_dir=tmp_path / "broken", resume=True)
    assert resumed.epoch == whole.epoch == 8
    assert resumed.position == whole.position
    assert (
        state_of(resumed)
        == state_of(whole)
        == {**{"monitor": "accuracy", "rule": "greater", "best": 0.5, "best_at": "epoch 5", "waited": 3}}
    )
    for name, value in whole.model.state_dict().items():
        assert value.equal(resumed.model.state_dict()[name])


@pytest.mark.parametrize("interval", [1, 5])
def test_the_last_checkpoint_is_there_after_a_stop_and_a_resumed_run_ends_at_once(
    tmp_path: Path, interval: int
) -> None:
    checkpoint = {"checkpoint": {"interval": interval}}
    first = run(VALUES, EarlyStoppingHook("accuracy", patience=3), work_dir=tmp_path, default_hooks=checkpoint)
    assert first.saving.saved_at == first.iter == 16
    assert (tmp_path / "epoch_8.pth").exists()
    saved = torch.load(tmp_path / "epoch_8.pth", weights_only=True)
    assert saved["position"]["iter"] == 16
    for name, value in first.model.state_dict().items():
        assert saved["state_dict"][name].equal(value)
    again = EarlyStoppingHook("accuracy", patience=3)
    second = run(VALUES, again, work_dir=tmp_path, default_hooks=checkpoint, resume=True)
    assert second.iter == 16
    assert second.stopped.reason == first.stopped.reason
    assert state_of(second) == state_of(first)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 16


def test_without_the_hook_a_stopped_run_continues(tmp_path: Path) -> None:
    run(VALUES, EarlyStoppingHook("accuracy", patience=3), work_dir=tmp_path)
    runner = toy_runner(max_epochs=9, batches=2, custom_hooks=[Given(VALUES)], work_dir=tmp_path, resume=True)
    runner.train()
    assert runner.epoch == 9


def test_val_alone_counts_nothing_and_training_is_the_same_until_the_stop() -> None:
    hook = EarlyStoppingHook("accuracy", patience=1)
    having = run([0.5, 0.6, 0.6], hook)
    without = toy_runner(max_epochs=3, batches=2)
    without.train()
    for name, value in without.model.state_dict().items():
        assert value.equal(having.model.state_dict()[name])
    before = hook.state_dict()
    having.position.validations = 0
    having.val()
    assert hook.state_dict() == before


def test_a_runner_started_twice_keeps_what_it_knows() -> None:
    values = [0.5, 0.4, 0.4, 0.4]
    hook = EarlyStoppingHook("accuracy", patience=2)
    runner = toy_runner(max_epochs=1, batches=2, custom_hooks=[hook, Given(values)])
    runner.train()
    runner.train_loop.max_epochs = 4
    runner.train()
    assert (runner.epoch, hook.best.at, hook.waited) == (3, "epoch 1", 2)


def test_a_best_of_another_metric_is_not_compared_with(tmp_path: Path) -> None:
    run([0.5, 0.4], EarlyStoppingHook("accuracy", patience=9), work_dir=tmp_path)
    hook = EarlyStoppingHook("loss", patience=9)
    runner = run([0.0, 5.0, 3.0], hook, work_dir=tmp_path, resume=True)
    assert (hook.best.value, hook.best.at, hook.waited) == (3.0, "epoch 3", 0)
    said = (
        "warning: EarlyStoppingHook now monitors 'loss' (less), but the checkpoint has 'accuracy' (greater): "
        "the best value starts from scratch"
    )
    assert said in (runner.work_dir / "run.log").read_text()


def test_a_failing_validation_counts_nothing() -> None:
    hook = EarlyStoppingHook("accuracy", patience=2)
    runner = toy_runner(max_epochs=2, custom_hooks=[hook])
    runner.on("after_val_iter")(lambda runner: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        runner.train()
    assert (hook.best.value, hook.best.at, hook.waited) == (None, "", 0)


# ------------------------------------------------------------------------------------------------- constructing


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("acuracy", "EarlyStoppingHook: validation returns no metric 'acuracy'; did you mean 'accuracy'?"),
        (
            "score",
            "EarlyStoppingHook: the name 'score' does not show whether higher or lower is better; set rule: greater or "
            "rule: less",
        ),
    ],
)
def test_a_name_that_tells_no_rule_is_first_looked_for_in_what_validation_gives(name: str, message: str) -> None:
    metrics = {"accuracy": accuracy, "score": accuracy}
    val = EvalLoop(toy_data(2), predict, metrics=metrics)
    with pytest.raises(ConfigError) as refused:
        toy_runner(val=val, custom_hooks=[EarlyStoppingHook(name)]).train()
    assert str(refused.value) == message


def test_a_config_names_it_and_it_comes_after_the_checkpoint_hook() -> None:
    writer = MemoryWriter()
    given = {"type": "EarlyStoppingHook", "monitor": "accuracy", "patience": 1}
    runner = run([0.5, 0.5, 0.5], given, writers=[writer])
    names = [entry.name for entry in runner.plan]
    assert names[-3:] == ["CheckpointHook", "ReportHook", "EarlyStoppingHook"]
    assert runner.epoch == 2


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"monitor": ""}, "monitor must be the name of a metric, not ''"),
        ({"monitor": 3}, "monitor must be the name of a metric, not 3"),
        ({"rule": "more"}, "the rule for 'accuracy' must be 'greater' or 'less', not 'more'"),
        ({"min_delta": -0.1}, "min_delta must be a number of at least 0, not -0.1"),
        ({"min_delta": math.nan}, "min_delta must be a number of at least 0, not nan"),
        ({"min_delta": True}, "min_delta must be a number of at least 0, not True"),
        ({"patience": 0}, "patience must be an int of at least 1, not 0"),
        ({"patience": 2.0}, "patience must be an int of at least 1, not 2.0"),
        ({"stopping_threshold": math.inf}, "stopping_threshold must be a number, not inf"),
        ({"stopping_threshold": "0.9"}, "stopping_threshold must be a number, not '0.9'"),
    ],
)  # fmt: skip
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"monitor": "accuracy", **parameters}
    with pytest.raises(ConfigError) as refused:
        EarlyStoppingHook(**given)
    assert str(refused.value) == f"EarlyStoppingHook: {message}"


@pytest.mark.parametrize(("patience", "ends"), [(1, 2), (3, 4)])
def test_a_stopped_run_continues_with_other_parameters(tmp_path: Path, patience: int, ends: int) -> None:
    values = [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
    assert run(values, EarlyStoppingHook("accuracy", patience=1), work_dir=tmp_path).epoch == 2
    resumed = run(values, EarlyStoppingHook("accuracy", patience=patience), work_dir=tmp_path, resume=True)
    assert resumed.epoch == ends

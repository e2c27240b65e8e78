"""Smoothing: windows, methods and patterns, and that a resumed run continues with the saved totals."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hookline import Hook, MessageHub, Runner
from hookline.engine.steps import cross_entropy
from hookline.errors import ConfigError
from hookline.hooks import LoggerHook
from hookline.record.smoothing import Smoothing, rules_of
from hookline.testing import MemoryWriter, toy_runner

if TYPE_CHECKING:
    from torch import nn


class Counts(Hook):
    """Records the number of the iteration, from 1."""

    def after_train_iter(self, runner: Runner) -> None:
        runner.hub.update_scalar("train/n", runner.iter + 1.0)


def shown(rules: list[dict[str, Any]], *, interval: int = 2, **parts: Any) -> list[dict[str, Any]]:
    """Return what the logger shows of the numbers 1, 2, 3, ... in epochs of five iterations."""
    writer = MemoryWriter()
    hooks = {"logger": {"interval": interval, "smoothing": rules}}
    given: dict[str, Any] = {"max_epochs": 2, "batches": 5, "val": None, **parts}
    toy_runner(default_hooks=hooks, custom_hooks=[Counts()], writers=[writer], **given).train()
    return [{name: value for name, value in record.items() if name[:7] == "train/n"} for record in writer.records]


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        ({}, [1.5, 3.5, 6.0, 8.5]),  # 1 2 | 3 4 | 5 6 7 | 8 9, and 10 is ignored
        ({"method": "min"}, [1, 3, 5, 8]),
        ({"method": "max"}, [2, 4, 7, 9]),
        ({"method": "current"}, [2, 4, 7, 9]),
        ({"window_size": 3}, [1.5, 3, 6, 8]),
        ({"window_size": "epoch"}, [1.5, 2.5, 6.5, 7.5]),
        ({"window_size": "epoch", "method": "min"}, [1, 1, 6, 6]),
        ({"window_size": "global"}, [1.5, 2.5, 4, 5]),
        ({"window_size": "global", "method": "max"}, [2, 4, 7, 9]),
        ({"window_size": "global", "method": "current"}, [2, 4, 7, 9]),
    ],
)
@pytest.mark.parametrize("length", [{"max_epochs": 2}, {"max_iters": 9}])
def test_a_window_and_a_method_by_pattern(rule: dict[str, Any], values: list[float], length: dict[str, int]) -> None:
    parts: dict[str, Any] = {"max_epochs": None} | length
    found = shown([{"match": "train/n", **rule}], **parts)
    if "max_iters" in length:  # here the interval continues across epochs: 1 2 | 3 4 | 5 6 | 7 8
        by_iterations: dict[tuple[Any, Any], list[float]] = {
            (None, None): [1.5, 3.5, 5.5, 7.5],
            (None, "min"): [1, 3, 5, 7],
            (3, None): [1.5, 3, 5, 7],
            ("epoch", None): [1.5, 2.5, 6, 7],
            ("epoch", "min"): [1, 1, 6, 6],
            ("global", None): [1.5, 2.5, 3.5, 4.5],
        }
        values = by_iterations.get((rule.get("window_size"), rule.get("method")), [2, 4, 6, 8])
    assert [record["train/n"] for record in found] == values


def test_a_rule_with_a_name_adds_a_number_and_the_next_one_decides_about_the_name_itself() -> None:
    rules = [
        {"match": "*/n", "window_size": "epoch", "log_name": "train/n_of_epoch"},
        {"match": "*/n", "window_size": "global", "method": "max", "log_name": "train/n_most"},
        {"match": "train/*", "method": "min"},
    ]
    assert shown(rules)[:3] == [
        {"train/n_of_epoch": 1.5, "train/n_most": 2, "train/n": 1},
        {"train/n_of_epoch": 2.5, "train/n_most": 4, "train/n": 3},
        {"train/n_of_epoch": 6.5, "train/n_most": 7, "train/n": 5},
    ]


def test_a_window_may_be_longer_than_the_default_history() -> None:
    rules = [{"match": "train/n", "window_size": 1400}]
    (found,) = shown(rules, interval=1500, max_epochs=None, max_iters=1500, batches=3)
    assert found["train/n"] == sum(range(101, 1501)) / 1400
    (found,) = shown([{"match": "train/n"}], interval=1500, max_epochs=None, max_iters=1500, batches=3)
    assert found["train/n"] == sum(range(1, 1501)) / 1500


@pytest.mark.parametrize("dies_at", [1, 3, 4, 5, 6, 8])
def test_a_resumed_run_shows_what_one_that_was_never_interrupted_shows(tmp_path: Path, dies_at: int) -> None:
    rules = [
        {"match": "train/n", "window_size": "epoch", "log_name": "train/n_epoch"},
        {"match": "train/n", "window_size": "global"},
    ]

    def run(folder: Path, dies: bool, **parts: Any) -> list[dict[str, Any]]:
        hooks = {"logger": {"interval": 2, "smoothing": rules}, "checkpoint": {"interval": 1, "by_epoch": False}}
        runner = toy_runner(
            work_dir=folder, max_epochs=2, batches=5, val=None, default_hooks=hooks, custom_hooks=[Counts()], **parts
        )
        if dies:
            runner.on("before_train_iter")(lambda runner: 1 // (runner.iter != dies_at))
        runner.train()
        from tests.contract.test_hooks import records

        return records(str(folder))

    whole = run(tmp_path / "whole", dies=False)
    with pytest.raises(ZeroDivisionError):
        run(tmp_path / "broken", dies=True)
    assert run(tmp_path / "broken", dies=False, resume=True) == whole
    assert [record["train/n_epoch"] for record in whole] == [1.5, 2.5, 6.5, 7.5]


def test_digits_of_a_line() -> None:
    runner = toy_runner(max_epochs=1, val=None, default_hooks={"logger": {"num_digits": 2, "interval": 4}})
    runner.train()
    line = (runner.work_dir / "run.log").read_text().splitlines()[0]
    loss = runner.hub.get_scalar("train/loss").mean(4)
    assert f"  lr 0.10  loss {loss:.2f}  " in line


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("loss", "LoggerHook: smoothing[0] must be a mapping with a name pattern as 'match', not 'loss'"),
        ({"method": "min"}, "LoggerHook: smoothing[0] must be a mapping with a name pattern as 'match', not {'method'"),
        (
            {"match": "a", "windowsize": 3},
            "LoggerHook: smoothing[0]: unknown key 'windowsize'; did you mean 'window_size'?",
        ),
        (
            {"match": "a", "method": "median"},
            "LoggerHook: smoothing[0]: method cannot be 'median'; did you mean 'mean'?",
        ),
        (
            {"match": "a", "window_size": "epch"},
            "LoggerHook: smoothing[0]: window_size cannot be 'epch'; did you mean 'epoch'?",
        ),
        (
            {"match": "a", "window_size": 0},
            "LoggerHook: smoothing[0]: window_size must be an int of at least 1, not 0",
        ),
        ({"match": "a", "log_name": ""}, "LoggerHook: smoothing[0]: log_name must be a non-empty string, not ''"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(rule: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        LoggerHook(smoothing=[rule])
    assert str(refused.value).startswith(message)


def test_without_rules_nothing_is_remembered() -> None:
    hub, smoothing = MessageHub(), Smoothing(rules_of([], "mine"))
    hub.update_scalars({"train/loss": 2.0, "train/lr": 0.1})
    hub.update_scalars({"train/loss": 4.0, "train/lr": 0.2})
    assert smoothing.take(hub, "train/") == {"train/loss": 3.0, "train/lr": 0.2}
    assert smoothing.state_dict() == {}


def test_values_left_over_from_an_epoch_are_in_the_first_record_of_the_next() -> None:
    """1,999 iterations, a record every 1,000: 999 values of the first epoch are not logged when the second begins."""
    hub, smoothing = MessageHub(), Smoothing(rules_of([{"match": "train/n", "window_size": "epoch"}], "LoggerHook"))
    LoggerHook(1000).before_train(SimpleNamespace(hub=hub))  # type: ignore[arg-type]  # the only part of a runner that it needs
    found = []
    for number in range(1, 4000):
        hub.update_scalar("train/n", float(number))
        hub.update_scalar("train/loss", float(number))
        if (number - 1) % 1999 + 1 == 1000:
            found.append(smoothing.take(hub, "train/"))
        if number % 1999 == 0:
            smoothing.end_epoch(hub, "train/")
    assert found == [
        {"train/n": 500.5, "train/loss": 500.5},
        {"train/n": sum(range(2000, 3000)) / 1000, "train/loss": sum(range(1001, 3000)) / 1999},
    ]


def test_an_epoch_of_a_validation_is_one_validation() -> None:
    writer = MemoryWriter()

    class Validates(Hook):
        def after_val_iter(self, runner: Runner, batch_idx: int) -> None:
            runner.hub.update_scalar("val/loss", 10.0 * runner.epoch + batch_idx)

    hooks = {"logger": {"smoothing": [{"match": "*loss*", "window_size": "epoch"}]}}
    toy_runner(default_hooks=hooks, custom_hooks=[Validates()], writers=[writer], max_epochs=3).train()
    assert [record["val/loss"] for record in writer.records if "val/loss" in record] == [10.5, 20.5, 30.5]


def test_names_outside_of_the_stages_are_part_of_trainings_records() -> None:
    writer = MemoryWriter()

    class Own(Hook):
        def after_train_iter(self, runner: Runner) -> None:
            runner.hub.update_scalars({"gan/real": float(runner.iter), "mine": 5})

    toy_runner(custom_hooks=[Own()], writers=[writer], max_epochs=1, val=None).train()
    assert [(record["gan/real"], record["mine"]) for record in writer.records] == [(3.0, 5)]


def test_a_rule_that_nothing_matches_is_reported_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    shown([{"match": "trian/n", "method": "max"}], quiet=False)
    assert (
        "warning: LoggerHook: smoothing[0] matches 'trian/n', but nothing was recorded under such a name; did you mean "
        "'train/n'?" in capsys.readouterr().out
    )


def test_two_names_under_one_log_name_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        shown([{"match": "train/*", "log_name": "train/all"}])
    assert str(caught.value) == (
        "LoggerHook: smoothing shows both 'train/lr' and 'train/data_time' as 'train/all'; give each its own log_name"
    )


def test_a_mean_goes_back_to_the_last_record_and_no_further() -> None:
    writer = MemoryWriter()
    losses = iter(range(1, 13))

    def step(model: nn.Module, batch: Any) -> Any:
        return {"loss": cross_entropy(model, batch), "my_loss": float(next(losses))}

    toy_runner(max_epochs=3, batches=4, step=step, writers=[writer], val=None).train()
    assert [record["train/my_loss"] for record in writer.records] == [2.5, 6.5, 10.5]

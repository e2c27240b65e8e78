"""Metrics: results that are not numbers are refused when they appear, with the name of the metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from hookline import EvalLoop
from hookline.engine.metrics import Metrics
from hookline.engine.steps import predict
from hookline.errors import ConfigError, HooklineError
from hookline.testing import MemoryWriter, toy_data, toy_model, toy_runner

FOR_A_BATCH = "must return a number, or a tensor of numbers, for a batch, not"
ONE_NUMBER = (
    "is a function and must return one number for a batch, not a mapping; for several numbers, use several functions, "
    "or an object with update, compute and reset"
)
AT_THE_END = "must be a number, a tensor, or a mapping of names to these, not"


class Result:
    """A metric that returns anything."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def reset(self) -> None: ...

    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None: ...

    def compute(self) -> Any:
        return self.value


def validation(metric: Any) -> EvalLoop:
    return EvalLoop(toy_data(2), predict, metrics={"score": metric})


def returning(value: Any) -> Callable[..., Any]:
    return lambda preds, target: value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, f"{FOR_A_BATCH} None"),
        ("0.9", f"{FOR_A_BATCH} a str"),
        (1 + 2j, f"{FOR_A_BATCH} a complex"),
        (torch.tensor(1 + 2j), f"{FOR_A_BATCH} a complex tensor of shape ()"),
        (torch.zeros(0), f"{FOR_A_BATCH} a tensor of shape (0,)"),
        ([0.5, "a"], f"{FOR_A_BATCH} a list"),
        ({"a": 0.5}, ONE_NUMBER),
    ],
)
def test_a_function_that_returns_no_number_is_refused_at_its_first_batch(value: Any, message: str) -> None:
    runner = toy_runner(val=validation(returning(value)))
    with pytest.raises(ConfigError) as refused:
        runner.val()
    assert (str(refused.value), refused.value.exit_code) == (f"the metric 'score' {message}", 2)
    assert refused.value.__notes__[0].startswith("in the step of val, batch 0")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, f"'score' {AT_THE_END} None"),
        ("0.9", f"'score' {AT_THE_END} a str"),
        (b"0.9", f"'score' {AT_THE_END} a bytes"),
        (1 + 2j, f"'score' {AT_THE_END} a complex"),
        (torch.tensor([1 + 2j, 1]), f"'score' {AT_THE_END} a complex tensor of shape (2,)"),
        ({"a": 0.5, "b": None}, f"'score/b' {AT_THE_END} None"),
        ({"a": {"b": 0.5}}, f"'score/a' {AT_THE_END} a dict"),
    ],
)
def test_an_object_whose_result_is_no_number_is_refused(value: Any, message: str) -> None:
    runner = toy_runner(val=validation(Result(value)))
    with pytest.raises(ConfigError) as refused:
        runner.val()
    assert str(refused.value) == f"the metric {message}"


def test_a_metric_that_is_monitored_is_refused_before_training() -> None:
    saving = {"checkpoint": {"save_best": "score", "rule": "greater"}}
    runner = toy_runner(val=validation(Result(None)), default_hooks=saving)
    with pytest.raises(ConfigError, match=f"^the metric 'score' {AT_THE_END} None$"):
        runner.train()
    assert runner.iter == 0


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        (0.5, {"val/score": 0.5}),
        (np.float32(0.5), {"val/score": 0.5}),
        (torch.tensor([0.25, 0.75]), {"val/score": 0.5}),
        ([0.25, 0.75], {"val/score": 0.5}),
        (float("nan"), {"val/score": None}),
    ],
)
def test_the_mean_of_what_a_function_returns_is_recorded(value: Any, recorded: dict[str, float | None]) -> None:
    writer = MemoryWriter()
    toy_runner(val=validation(returning(value)), writers=[writer]).val()
    found = {name: value for name, value in writer.records[-1].items() if name.startswith("val/score")}
    assert {name: value if value == value else None for name, value in found.items()} == recorded


def test_a_mapping_of_an_object_is_recorded_under_the_name_of_the_metric_and_its_keys() -> None:
    writer = MemoryWriter()
    result = {"a": torch.tensor(0.5), "b": 2, "matrix": torch.eye(2)}
    metrics = toy_runner(val=validation(Result(result)), writers=[writer]).val()
    assert list(metrics) == ["score/a", "score/b", "score/matrix"]
    assert {name: value for name, value in writer.records[-1].items() if "score" in name} == {
        "val/score/a": 0.5,
        "val/score/b": 2,
    }


def test_a_complex_loss_is_refused_at_the_first_step() -> None:
    model = toy_model()
    runner = toy_runner(model=model, step=lambda model, batch: model(batch[0]).sum() * 1j)
    with pytest.raises(HooklineError) as refused:
        runner.train()
    assert str(refused.value) == (
        "the loss of the step is a complex tensor of shape (); return a real number, such as loss.abs()"
    )


def test_a_hostile_name_is_escaped_in_the_error() -> None:
    metrics = Metrics({"a\x1b\n  b": returning(None)})
    metrics.reset(torch.device("cpu"))
    with pytest.raises(ConfigError, match=r"^the metric 'a\\x1b\\n  b' must return"):
        metrics.update((torch.zeros(2), torch.zeros(2)), None)

"""Metrics: results that are not numbers are refused when they appear, with the name of the metric."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hookline import EvalLoop
from hookline.engine.metrics import KEPT, Average, Metrics
from hookline.engine.steps import cross_entropy, predict
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
        (10**400, f"{FOR_A_BATCH} a int"),
        (torch.ones(1).to_sparse(), f"{FOR_A_BATCH} a sparse tensor of shape (1,)"),
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
        ({}, f"'score' {AT_THE_END} an empty dict"),
        ([0.5, 0.5], f"'score' {AT_THE_END} a list"),
        (object(), f"'score' {AT_THE_END} a object"),
        (torch.zeros(0), f"'score' {AT_THE_END} a tensor of shape (0,)"),
        (np.zeros(0), f"'score' {AT_THE_END} a ndarray"),
        (torch.zeros(1, device="meta"), f"'score' {AT_THE_END} a tensor of shape (1,) on the device 'meta'"),
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
    with pytest.raises(ConfigError) as refused:
        runner.train()
    assert str(refused.value) == f"the metric 'score' {AT_THE_END} None"
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


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *((True, 1), (np.bool_(True), 1), (torch.tensor(True), 1), (Decimal("0.5"), 0.5), (Fraction(1, 2), 0.5)),
        *((torch.tensor([0.5]), 0.5), (np.float16(0.5), 0.5)),
    ],
)
@pytest.mark.parametrize("kind", [Result, returning])
def test_a_number_of_any_kind_is_recorded(kind: Callable[[Any], Any], value: Any, number: float) -> None:
    writer = MemoryWriter()
    toy_runner(val=validation(kind(value)), writers=[writer]).val()
    assert writer.records[-1]["val/score"] == number


@pytest.mark.parametrize("value", [torch.eye(2), np.eye(2)])
def test_an_array_is_passed_to_hooks_and_reported_once(tmp_path: Path, value: Any) -> None:
    seen: list[Any] = []
    runner = toy_runner(val=validation(Result({"matrix": value, "loss": 0.5})), work_dir=tmp_path)
    runner.on("after_val_epoch")(lambda runner, metrics: seen.append(metrics["score/matrix"].sum().item()))
    runner.train()
    assert seen == [2.0, 2.0]
    kind = "tensor of shape (2, 2)" if isinstance(value, torch.Tensor) else "ndarray"
    assert (tmp_path / "run.log").read_text().count(
        f"the metric 'score/matrix' is a {kind}: hooks receive it, but it is not recorded; return one number to record"
    ) == 1


def test_a_mean_without_a_value_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="^the metric 'score' has no mean over the batches: a tensor on the device 'meta'"
    ):
        toy_runner(val=validation(returning(torch.ones(1, device="meta")))).val()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (10**400, "the scalar 'train/extra' is too large for a float: it is an int of 1329 bits"),
        (
            torch.ones(1, device="meta"),
            "a tensor on the device 'meta' cannot be recorded, because it has no value; check what the step returns "
            "and what hooks record",
        ),
    ],
)
def test_a_value_of_a_step_that_cannot_be_recorded_ends_the_run(value: Any, message: str) -> None:
    def step(model: torch.nn.Module, batch: Any) -> dict[str, Any]:
        return {"loss": cross_entropy(model, batch), "extra": value}

    with pytest.raises(ConfigError) as refused:
        toy_runner(step=step, default_hooks={"logger": {"interval": 1}}).train()
    assert str(refused.value).splitlines()[0] == message


def test_a_mapping_of_an_object_is_recorded_under_the_name_of_the_metric_and_its_keys() -> None:
    writer = MemoryWriter()
    result = {"a": torch.tensor(0.5), "b": 2, "matrix": torch.eye(2)}
    metrics = toy_runner(val=validation(Result(result)), writers=[writer]).val()
    assert list(metrics) == ["score/a", "score/b", "score/matrix"]
    assert {name: value for name, value in writer.records[-1].items() if "score" in name} == {
        "val/score/a": 0.5,
        "val/score/b": 2,
    }


def complex_loss(model: nn.Module, batch: list[torch.Tensor]) -> Any:
    return model(batch[0]).sum() * 1j


def complex_loss_of_its_own_update(model: nn.Module, batch: list[torch.Tensor], optim: Any) -> dict[str, torch.Tensor]:
    optim.update(model(batch[0]).sum())
    return {"loss": complex_loss(model, batch)}


@pytest.mark.parametrize("step", [complex_loss, complex_loss_of_its_own_update])
def test_a_complex_loss_is_refused_at_the_first_step(step: Any) -> None:
    runner = toy_runner(model=toy_model(), step=step)
    with pytest.raises(HooklineError) as refused:
        runner.train()
    assert str(refused.value) == (
        "the loss of the step is a complex tensor of shape (); return a real number, such as loss.abs()"
    )


def test_a_hostile_name_is_escaped_in_the_error() -> None:
    metrics = Metrics({"a\x1b\n  b": returning(None)})
    metrics.reset(torch.device("cpu"))
    with pytest.raises(ConfigError, match=r"^the metric 'a\\x1b\\n  b' must return"):
        metrics.update((torch.zeros(2), torch.zeros(2)), None, 2)


def test_the_mean_over_many_batches_keeps_few_values_and_is_weighted_by_samples() -> None:
    average = Average()
    for number in range(2 * KEPT + 3):
        average.update(torch.tensor(float(number)), weight=1 + number % 2)
        assert len(average._values) < KEPT
    values = [(number, 1 + number % 2) for number in range(2 * KEPT + 3)]
    total, samples = sum(value * weight for value, weight in values), sum(weight for _, weight in values)
    assert average.sums().tolist() == average.sums().tolist() == [total, samples]
    assert Average().sums().tolist() == [0.0, 0.0]


def test_a_function_may_return_the_same_tensor_again() -> None:
    same = torch.zeros(())
    metrics = Metrics({"mean": lambda preds: same.copy_(preds.mean())})
    metrics.reset(torch.device("cpu"))
    for value in (1.0, 3.0):
        metrics.update(torch.tensor([value]), None, 1.0)
    assert metrics.compute() == {"mean": 2.0}


def test_the_sums_of_all_functions_and_of_the_loss_are_exchanged_at_once() -> None:
    metrics = Metrics({"one": lambda preds: preds.mean(), "two": lambda preds: preds.sum()})
    metrics.reset(torch.device("cpu"))
    losses, exchanged = Average(), []
    for value, weight in ((1.0, 2), (4.0, 1)):
        metrics.update(torch.tensor([value, value]), None, weight)
        losses.update(torch.tensor(10 * value), weight)

    def total(sums: torch.Tensor) -> torch.Tensor:
        exchanged.append(sums.tolist())
        return 2 * sums  # another process has the same

    assert metrics.compute(total, losses) == {"one": 2.0, "two": 4.0, "loss": 20.0}
    assert exchanged == [[[6.0, 3.0], [12.0, 3.0], [60.0, 3.0]]]


def test_nothing_is_exchanged_without_a_function_or_a_loss() -> None:
    metrics = Metrics(None)
    metrics.reset(torch.device("cpu"))
    assert metrics.compute(lambda sums: pytest.fail("there is nothing to exchange")) == {}


def test_values_of_several_types_are_added_up_without_a_loss_of_digits() -> None:
    average, large = Average(), 2**24 + 1
    for value in (torch.tensor(large), torch.tensor(0.5), torch.tensor(0.25, dtype=torch.float64)):
        average.update(value, 1)
    assert average.sums().tolist() == [large + 0.75, 3.0]

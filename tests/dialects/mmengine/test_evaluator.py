"""Metrics and evaluators."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hookline.dialects.mmengine.evaluator import BaseMetric, DumpResults, Evaluator, get_metric_value
from hookline.errors import ConfigError
from tests.dialects.mmengine.parts import ToyAccuracy, runner_of


class Sizes(BaseMetric):
    default_prefix = "sizes"

    def process(self, data_batch: Any, data_samples: Any) -> None:
        self.results.extend(data_samples)

    def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
        return {"sum": sum(sample["size"] for sample in results), "number": len(results)}


def samples(*sizes: int) -> list[dict[str, int]]:
    return [{"size": size} for size in sizes]


def test_metrics_over_all_batches_cut_to_the_size_of_the_data() -> None:
    evaluator = Evaluator([Sizes(), Sizes(prefix="other")])
    for batch in (samples(1, 2), samples(3, 4)):
        evaluator.process(data_samples=batch, data_batch=None)
    assert evaluator.evaluate(3) == {"sizes/sum": 6, "sizes/number": 3, "other/sum": 6, "other/number": 3}
    evaluator.process(samples(5))
    assert evaluator.evaluate(1)["sizes/sum"] == 5


def test_duplicate_metric_names_are_refused() -> None:
    evaluator = Evaluator([Sizes(), Sizes()])
    evaluator.process(samples(1))
    with pytest.raises(ValueError, match="^two metrics are named 'sizes/sum'; set a different prefix for Sizes$"):
        evaluator.evaluate(1)


def test_metrics_are_dicts_or_objects() -> None:
    assert [type(metric) for metric in Evaluator({"type": "ToyAccuracy"}).metrics] == [ToyAccuracy]
    assert len(Evaluator([{"type": "ToyAccuracy"}, ToyAccuracy()]).metrics) == 2
    with pytest.raises(TypeError, match="^a metric must be a BaseMetric or a dict with a 'type', not 3$"):
        Evaluator(3)
    with pytest.raises(ValueError, match="^Sizes: collect_device must be 'cpu' or 'gpu', not 'tpu'$"):
        Sizes(collect_device="tpu")


def test_metrics_get_the_metadata_of_the_dataset() -> None:
    evaluator = Evaluator([Sizes(), Sizes()])
    evaluator.dataset_meta = {"classes": ("a", "b")}
    assert [metric.dataset_meta for metric in evaluator.metrics] == [{"classes": ("a", "b")}] * 2


def test_samples_with_to_dict_become_dicts() -> None:
    evaluator = Evaluator(Sizes())
    evaluator.process([SimpleNamespace(to_dict=lambda: {"size": 4})])
    assert evaluator.evaluate(1)["sizes/sum"] == 4


def test_existing_predictions_can_be_evaluated() -> None:
    assert Evaluator(Sizes()).offline_evaluate(samples(1, 2, 3, 4, 5), chunk_size=2) == {
        "sizes/sum": 15, "sizes/number": 5,
    }  # fmt: skip
    assert Evaluator(Sizes()).offline_evaluate(iter(samples(1, 2)), iter([7, 8]))["sizes/number"] == 2


def test_data_of_another_length_than_the_predictions_is_refused() -> None:
    evaluator = Evaluator(Sizes())
    assert evaluator.offline_evaluate(samples(1, 2, 3), [{}] * 3, chunk_size=2)["sizes/number"] == 3
    with pytest.raises(AssertionError, match="^offline_evaluate: data ends at 3, before data_samples$"):
        Evaluator(Sizes()).offline_evaluate(samples(1, 2, 3, 4), [{}] * 3, chunk_size=2)
    with pytest.raises(AssertionError, match="^offline_evaluate: there are only 3 data_samples, and more data$"):
        Evaluator(Sizes()).offline_evaluate(samples(1, 2, 3), [{}] * 5)


def test_a_metric_without_results_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert Sizes().evaluate(3) == {"sizes/sum": 0, "sizes/number": 0}
    assert caplog.messages == [
        "Sizes stored no results to compute metrics from; does its process() add to self.results?"
    ]


def test_predictions_are_written_to_a_file(tmp_path: Path) -> None:
    dump = {"type": "DumpResults", "out_file_path": str(tmp_path / "all" / "predictions.pkl")}
    metrics = runner_of(tmp_path / "run", test_evaluator=[dump, {"type": "ToyAccuracy"}]).test()
    with open(tmp_path / "all" / "predictions.pkl", "rb") as file:
        stored = pickle.load(file)
    assert len(stored) == 16
    right = [float(torch.equal(each["prediction"], each["label"])) for each in stored]
    assert metrics == {"accuracy": sum(right) / 16}
    with pytest.raises(
        ConfigError, match=r"^DumpResults: the file name must end with \.pkl or \.pickle; got 'x\.json'$"
    ):
        DumpResults("x.json")


def test_a_metric_that_fails_is_named_with_its_place(tmp_path: Path) -> None:
    class Fails(BaseMetric):
        def process(self, data_batch: Any, data_samples: Any) -> None:
            if self.at == "process":
                raise KeyError("pred")
            self.results.append(1)

        def compute_metrics(self, results: list[Any]) -> Any:
            if self.at == "compute":
                raise KeyError("pred")
            return 5

        at = "process"

    metric = Fails()
    runner = runner_of(tmp_path, val_evaluator=metric)
    with pytest.raises(KeyError) as failed:
        runner.train()
    assert failed.value.__notes__ == [
        "in the metric Fails, called with the predictions for a batch",
        "in the step of val, batch 0, epoch=1 iter=4 rank=0",
    ]
    metric.at = "compute"
    with pytest.raises(KeyError) as failed:
        runner_of(tmp_path, val_evaluator=metric).val()
    assert failed.value.__notes__ == ["in the metric Fails, computed over 2 samples"]
    metric.at = "neither"
    with pytest.raises(
        TypeError, match=r"^Fails.compute_metrics must return a dict such as dict\(accuracy=0.9\), not 5"
    ):
        runner_of(tmp_path, val_evaluator=metric).val()


def test_a_metric_by_its_name_with_or_without_its_prefix() -> None:
    metrics = {"a/top1": 1.0, "b/top5": 2.0, "loss": 3.0, "a/f1": 4.0, "b/f1": 5.0}
    assert [get_metric_value(name, metrics) for name in ("a/top1", "top5", "loss")] == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="^'f1' is ambiguous: it may be a/f1 or b/f1; add the prefix$"):
        get_metric_value("f1", metrics)
    with pytest.raises(ValueError, match="^unknown metric 'los'; did you mean 'loss'"):
        get_metric_value("los", metrics)

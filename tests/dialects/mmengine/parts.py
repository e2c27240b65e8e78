"""A small project written for MMEngine: a model, a metric, and a function that builds a runner."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hookline.dialects.mmengine.evaluator import BaseMetric
from hookline.dialects.mmengine.hooks import Hook
from hookline.dialects.mmengine.model import BaseModel
from hookline.dialects.mmengine.registry import METRICS, MODELS
from hookline.dialects.mmengine.runner import Runner
from hookline.testing import toy_data, toy_model


@MODELS.register_module()
class ToyNet(BaseModel):
    """The net of hookline's toy runner, as a model that computes its own losses and predictions."""

    def __init__(self, dropout: float = 0.0, data_preprocessor: Any = None, init_cfg: Any = None) -> None:
        super().__init__(data_preprocessor, init_cfg)
        self.net = toy_model()
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: Tensor, labels: Any = None, mode: str = "tensor") -> Any:  # type: ignore[override]
        logits = self.net(self.dropout(inputs))
        if mode == "loss":
            return {"loss": nn.functional.cross_entropy(logits, labels)}
        if mode == "predict":
            return [{"prediction": one, "label": other} for one, other in zip(logits.argmax(1), labels, strict=True)]
        return logits


@METRICS.register_module()
class ToyAccuracy(BaseMetric):
    """The fraction of correct predictions."""

    def process(self, data_batch: Any, data_samples: Sequence[dict[str, Any]]) -> None:
        self.results += [float(sample["prediction"] == sample["label"]) for sample in data_samples]

    def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
        return {"accuracy": sum(results) / len(results)}


class Seen(Hook):
    """Records every call: the point and the counters."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def _before_epoch(self, runner: Any, mode: str = "train") -> None:
        self.seen.append((f"before {mode} epoch", runner.epoch, runner.iter))

    def _after_epoch(self, runner: Any, mode: str = "train") -> None:
        self.seen.append((f"after {mode} epoch", runner.epoch, runner.iter))


TRAIN = ("train_dataloader", "train_cfg", "optim_wrapper", "param_scheduler")
VAL = ("val_dataloader", "val_cfg", "val_evaluator")
TEST = ("test_dataloader", "test_cfg", "test_evaluator")


def runner_of(work_dir: Path, without: Sequence[str] = (), **parts: Any) -> Runner:
    """Return a quiet runner of the toy project. Any part can be replaced or left out."""
    given: dict[str, Any] = {
        "model": {"type": "ToyNet"},
        "train_dataloader": toy_data(),
        "val_dataloader": toy_data(2, seed=1),
        "test_dataloader": toy_data(2, seed=2),
        "train_cfg": {"by_epoch": True, "max_epochs": 2},
        "val_cfg": {},
        "test_cfg": {},
        "optim_wrapper": {"optimizer": {"type": "SGD", "lr": 0.1}},
        "val_evaluator": {"type": "ToyAccuracy"},
        "test_evaluator": {"type": "ToyAccuracy"},
        "randomness": {"seed": 0},
        "log_level": "WARNING",
        **parts,
    }
    kind: type[Runner] = given.pop("kind", Runner)
    return kind(work_dir=work_dir, **{name: value for name, value in given.items() if name not in without})


def weights(path: Path, *keys: str) -> Any:
    """Return an entry of a checkpoint, as torch reads it."""
    found = torch.load(path, weights_only=True)
    for key in keys:
        found = found[key]
    return found

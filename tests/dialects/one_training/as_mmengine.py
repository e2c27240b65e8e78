"""The training as written for MMEngine: a model with modes, a metric, and dicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from hookline.dialects.mmengine.evaluator import BaseMetric
from hookline.dialects.mmengine.model import BaseModel
from hookline.dialects.mmengine.registry import METRICS, MODELS
from hookline.dialects.mmengine.runner import Runner
from tests.dialects.one_training import natively, shared


@MODELS.register_module()
class TrainingNet(BaseModel):
    def __init__(self) -> None:
        super().__init__()
        shared.put_layers(self)

    def forward(self, inputs: Tensor, labels: Any = None, mode: str = "tensor") -> Any:  # type: ignore[override]
        scores = shared.scores_of(self, inputs)
        if mode == "loss":
            return {"loss": nn.functional.cross_entropy(scores, labels)}
        return list(zip(scores.argmax(1), labels, strict=True)) if mode == "predict" else scores


@METRICS.register_module()
class TrainingAccuracy(BaseMetric):
    def process(self, data_batch: Any, data_samples: Sequence[Any]) -> None:
        self.results += [float(found == label) for found, label in data_samples]

    def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
        return {"accuracy": sum(results) / len(results)}


def train(folder: Path, **changes: Any) -> shared.Ended:
    """Train. Keyword arguments replace parts of the run."""
    sgd = {"type": "SGD", "lr": shared.RATE, "momentum": shared.MOMENTUM}
    parts: dict[str, Any] = {
        "model": {"type": "TrainingNet"},
        "train_dataloader": shared.train_loader(),
        "train_cfg": {"by_epoch": True, "max_epochs": shared.EPOCHS, "val_interval": 1},
        "val_dataloader": shared.val_loader(),
        "val_cfg": {},
        "val_evaluator": {"type": "TrainingAccuracy"},
        "optim_wrapper": {"type": "OptimWrapper", "optimizer": sgd},
        "default_hooks": {"checkpoint": {"type": "CheckpointHook", "interval": 1, "save_best": "accuracy"}},
        "custom_hooks": [{"type": "EMAHook", "momentum": shared.AVERAGED}],
        "randomness": {"seed": shared.SEED},
        "log_level": "WARNING",
    }
    runner = Runner(work_dir=str(folder), **(parts | changes))
    net = runner.train()
    (ema,) = (hook for hook in runner.hooks if type(hook).__name__ == "EMAHook")
    with ema.average.swapped(net):
        averaged = shared.tensors(dict(net.named_parameters()))
    return shared.Ended(shared.tensors(dict(net.state_dict())), averaged, *natively.saved(folder))

"""The training as written for Pointrix: a trainer with its parts, steps instead of epochs, and hooks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hookline.checkpoint import store
from hookline.common.averaging import ExponentialMovingAverage
from hookline.dialects.pointrix.dataset import DATA_SET_REGISTRY
from hookline.dialects.pointrix.engine import DefaultTrainer
from hookline.dialects.pointrix.hook import HOOK_REGISTRY, Hook
from hookline.dialects.pointrix.model import MODEL_REGISTRY
from tests.dialects.one_training import shared


@DATA_SET_REGISTRY.register()
class TrainingSamples:
    def __init__(self, cfg: Any, split: str) -> None:
        self.samples = shared.train_set() if split == "train" else shared.held_out()

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


@MODEL_REGISTRY.register()
class TrainingModel(shared.Net):
    """The net with the methods that a trainer calls. A batch is a list of samples."""

    def __init__(self, cfg: Any, datapipeline: Any, device: str = "cpu") -> None:
        super().__init__()

    def forward(self, batch: Any) -> Tensor:
        return super().forward(torch.stack([inputs for inputs, _ in batch]))

    def get_loss_dict(self, scores: Tensor, batch: Any) -> dict[str, Tensor]:
        return {"loss": nn.functional.cross_entropy(scores, torch.stack([label for _, label in batch]))}

    def get_metric_dict(self, scores: Tensor, batch: Any) -> dict[str, Any]:
        return {"right": float(scores.argmax(1) == batch[0][1])}


@HOOK_REGISTRY.register()
class TrainingAverage(Hook):
    """hookline's average, at the points of this dialect."""

    def __init__(self, momentum: float) -> None:
        self.average = ExponentialMovingAverage(momentum)

    def after_train_iter(self, trainner: Any) -> None:
        self.average.update(trainner.model)

    def around_val(self, trainner: Any) -> Iterator[None]:
        with self.average.swapped(trainner.model):
            yield

    def state_dict(self) -> dict[str, Any]:
        return self.average.state_dict(self.trainer.model)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.average.load_state_dict(state, self.trainer.model)


@HOOK_REGISTRY.register()
class TrainingBest(Hook):
    """Saves the checkpoint with the best accuracy."""

    def __init__(self) -> None:
        self.best, self.step = -1.0, 0

    def before_val(self, trainner: Any) -> None:
        self.right: list[float] = []

    def after_val_iter(self, trainner: Any) -> None:
        self.right.append(trainner.metric_dict["right"])

    def after_val(self, trainner: Any) -> None:
        found = sum(self.right) / len(self.right)
        if found > self.best:
            self.best, self.step = found, trainner.iter
            trainner.request_save("best.pth")


def train(folder: Path) -> shared.Ended:
    cfg = {
        "seed": shared.SEED,
        "max_steps": shared.EPOCHS * shared.STEPS,
        "val_interval": shared.STEPS,
        "datapipeline": {"data_set": "TrainingSamples", "batch_size": shared.BATCH, "shuffle": True},
        "model": {"name": "TrainingModel"},
        "optimizer": {
            "optimizer_1": {
                "type": "BaseOptimizer",
                "name": "SGD",
                "args": {"lr": shared.RATE, "momentum": shared.MOMENTUM},
            }
        },
        "hooks": {
            "average": {"name": "TrainingAverage", "momentum": shared.AVERAGED},
            "best": {"name": "TrainingBest"},
            "save": {"name": "CheckPointHook", "save_step": shared.STEPS},
        },
    }
    trainer = DefaultTrainer(cfg, folder, "cpu")
    trainer.train_loop()
    average, best = trainer.hooks[:2]
    with average.average.swapped(trainer.model):
        averaged = shared.tensors(dict(trainer.model.named_parameters()))
    names = {str(epoch): f"chkpnt{epoch * shared.STEPS:05d}.pth" for epoch in range(1, shared.EPOCHS + 1)}
    checkpoints = {key: _read(folder / name) for key, name in (names | {"best": "best.pth"}).items()}
    weights = shared.tensors(dict(trainer.model.state_dict()))
    return shared.Ended(weights, averaged, best.step // shared.STEPS, checkpoints)


def _read(path: Path) -> dict[str, Tensor]:
    found = store.read(path, sealed=True)
    (optimizer,) = found["optimizer"].values()
    return shared.checkpoint_tensors(found["state_dict"], optimizer, found["hooks"]["TrainingAverage"], found["rng"])

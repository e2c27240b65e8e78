"""The same training, natively and as a trainer of this dialect: the same weights, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hookline import EvalLoop, Optim, Runner, TrainLoop
from hookline.averaging import ExponentialMovingAverage
from hookline.dialects.pointrix.engine import DefaultTrainer
from hookline.dialects.pointrix.hook import CheckPointHook, Hook
from hookline.dialects.pointrix.logger import Logger
from hookline.dialects.pointrix.optimizer import BaseOptimizer
from hookline.hooks import EMAHook as NativeEMAHook
from hookline.metrics import accuracy
from hookline.steps import cross_entropy, predict
from hookline.terminal import Terminal
from hookline.testing import toy_data, toy_model

if TYPE_CHECKING:
    import pytest

BATCHES, EPOCHS = 4, 3
RATE, MOMENTUM = 0.1, 0.25


class Classifier(nn.Sequential):
    """The toy net with what a trainer asks of a model."""

    def get_loss_dict(self, logits: Tensor, batch: Any) -> dict[str, Tensor]:
        return {"loss": nn.functional.cross_entropy(logits, batch[1])}

    def get_metric_dict(self, logits: Tensor, batch: Any) -> dict[str, Any]:
        return {"right": (logits.argmax(1) == batch[1]).sum(), "all": len(logits)}

    def forward(self, batch: Any) -> Tensor:
        logits: Tensor = super().forward(batch[0])  # type: ignore[no-untyped-call]  # torch has not typed it
        return logits


class Toys:
    def __init__(self) -> None:
        self.batches = toy_data(BATCHES)
        self.validation_dataset = toy_data(2, seed=1)

    def next_train(self, step: int) -> Any:
        return self.batches[(step - 1) % BATCHES]

    def next_val(self, index: int) -> Any:
        return self.validation_dataset[index]


class EMAHook(Hook):
    """The average of the core, at the points of this dialect."""

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


class Best(Hook):
    def __init__(self) -> None:
        self.best = -1.0

    def before_val(self, trainner: Any) -> None:
        self.right = self.all = 0

    def after_val_iter(self, trainner: Any) -> None:
        self.right += int(trainner.metric_dict["right"])
        self.all += trainner.metric_dict["all"]

    def after_val(self, trainner: Any) -> None:
        if self.right / self.all > self.best:
            self.best = self.right / self.all
            trainner.request_save("best.pth")


class ToyTrainer(DefaultTrainer):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.datapipeline, self.model = Toys(), Classifier(*toy_model())
        optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE, momentum=0.9)
        self.optimizer = BaseOptimizer(None, optimizer)


def train_natively(folder: Path) -> None:
    model = toy_model()
    runner = Runner(
        model,
        train=TrainLoop(toy_data(BATCHES), cross_entropy, max_epochs=EPOCHS),
        val=EvalLoop(toy_data(2, seed=1), predict, metrics={"accuracy": accuracy}),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)),
        default_hooks={"checkpoint": {"save_best": "accuracy"}},
        custom_hooks=[NativeEMAHook(momentum=MOMENTUM)],
        work_dir=folder,
        device="cpu",
        quiet=True,
    )
    runner.train()


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(path, weights_only=True)
    return found


def assert_same_tensors(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same_tensors(one[key], other[key])
    elif isinstance(one, Tensor):
        assert torch.equal(one, other)


def test_the_same_training_ends_in_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Logger, "terminal", Terminal(quiet=True))
    train_natively(tmp_path / "native")
    cfg = {"max_steps": BATCHES * EPOCHS, "val_interval": BATCHES, "save_step": BATCHES, "seed": 0}
    trainer = ToyTrainer(cfg, tmp_path / "pointrix", "cpu")
    for hook in (EMAHook(MOMENTUM), Best(), CheckPointHook()):
        trainer.register_hook(hook)
    trainer.train_loop()
    (best,) = (tmp_path / "native").glob("best_accuracy_*.pth")
    pairs = [(f"epoch_{epoch}.pth", f"chkpnt{BATCHES * epoch:05d}.pth") for epoch in (1, 2, 3)]
    for native, own in [*pairs, (best.name, "best.pth")]:
        left, right = read(tmp_path / "native" / native), read(tmp_path / "pointrix" / own)
        assert left["position"]["iter"] == right["position"]["iter"]
        assert_same_tensors(left["state_dict"], right["state_dict"])
        assert_same_tensors(left["optimizer"]["state"], right["optimizer"]["state"])
        assert_same_tensors(left["hooks"]["EMAHook"], right["hooks"]["EMAHook"])
        assert left["hooks"]["EMAHook"]["steps"] == right["hooks"]["EMAHook"]["steps"] == left["position"]["iter"]

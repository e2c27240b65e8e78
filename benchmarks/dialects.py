"""Trainings in native code and in the dialects that do the same work.

`instructions.py` and `tests/performance` count what they do. RoboOrchard trains on accelerate, so it is also compared
with a loop written by hand with accelerate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from hookline import Optim, Runner, TrainLoop
from hookline.dialects.imix.engine.imix_engine import imixEngine
from hookline.dialects.mmengine.model import BaseModel
from hookline.dialects.mmengine.runner import Runner as MMEngineRunner
from hookline.dialects.pointrix.engine import DefaultTrainer
from hookline.dialects.pointrix.logger import Logger
from hookline.dialects.pointrix.optimizer import BaseOptimizer
from hookline.dialects.robo_orchard_lab.pipeline import HookBasedTrainer
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor import SimpleBatchProcessor
from overhead import NO_DEFAULT_HOOKS, loss_of, make_model

RATE = 0.01
#: Only the default hooks for what every iMIX run does: record numbers and time iterations.
RECORDING = {key: None for key in NO_DEFAULT_HOOKS if key not in ("runtime_info", "timer", "param_scheduler")}


class Batches(list[Any]):
    """The data of an epoch."""

    def take(self, number: int) -> Any:
        """Return one batch."""
        return self[number]


class Net(nn.Module):
    """A small net, so that the benchmark measures the engine and not the arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(make_model().children())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the scores."""
        return scores_of(self, inputs)


def scores_of(net: Any, inputs: torch.Tensor) -> torch.Tensor:
    """Apply the layers of a net, one after the other."""
    for layer in net.layers:
        inputs = layer(inputs)
    return inputs


def natively(data: Batches, default_hooks: dict[str, Any] | None, keep_gradients: bool = False) -> None:
    """Train with a native Runner."""
    model = Net()
    Runner(
        model,
        train=TrainLoop(data, loss_of, max_epochs=1),
        optim=Optim(torch.optim.SGD(model.parameters(), lr=RATE), keep_gradients=keep_gradients),
        default_hooks=default_hooks,
        work_dir="run",
        device="cpu",
        quiet=True,
    ).train()


class MMEngineNet(BaseModel):
    """The net, with its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = Net().layers

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor, mode: str = "tensor") -> Any:  # type: ignore[override]
        """Return the loss in training, otherwise the scores."""
        scores = scores_of(self, inputs)
        return {"loss": nn.functional.cross_entropy(scores, labels)} if mode == "loss" else scores


def as_mmengine(data: Batches, default_hooks: dict[str, Any] | None) -> None:
    """Train with MMEngine's Runner."""
    MMEngineRunner(
        model=MMEngineNet(),
        work_dir="run",
        train_dataloader=data,
        train_cfg={"by_epoch": True, "max_epochs": 1},
        optim_wrapper={"optimizer": {"type": "SGD", "lr": RATE}},
        default_hooks=default_hooks,
        randomness={"seed": 0},
        log_level="WARNING",
    ).train()


def as_imix(data: Batches) -> None:
    """Train with iMIX's engine."""
    model = Net()
    cfg = {"total_epochs": 1, "work_dir": "run", "model_device": "cpu", "quiet": True}
    imixEngine(
        {**cfg, "log_config": None, "checkpoint_config": None},
        model=model,
        data_loader=data,
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
        loss_fn=loss_of,
    ).train()


class PointrixNet(Net):
    """The net, with the methods that a trainer calls."""

    def forward(self, batch: Any) -> torch.Tensor:
        """Return the scores."""
        return scores_of(self, batch[0])

    def get_loss_dict(self, scores: torch.Tensor, batch: Any) -> dict[str, torch.Tensor]:
        """Return the loss."""
        return {"loss": nn.functional.cross_entropy(scores, batch[1])}


class PointrixData:
    """Batches by step."""

    def __init__(self, data: Batches) -> None:
        self.data = data

    def next_train(self, step: int) -> Any:
        """Return the batch of a step."""
        return self.data.take(step - 1)


def as_pointrix(data: Batches) -> None:
    """Train with Pointrix's trainer."""
    Logger.terminal.quiet = True
    trainer = DefaultTrainer({"max_steps": len(data), "val_interval": 0, "seed": 0}, "run", "cpu")
    trainer.datapipeline, trainer.model = PointrixData(data), PointrixNet()
    trainer.optimizer = BaseOptimizer(None, torch.optim.SGD(trainer.model.parameters(), lr=RATE))
    trainer.train_loop()


def with_accelerate(data: Batches) -> None:
    """Train with a loop written by hand with accelerate."""
    from accelerate import Accelerator  # type: ignore[import-untyped]

    model = Net()
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=RATE))
    for batch in data:
        optimizer.zero_grad()
        accelerator.backward(loss_of(model, batch))
        optimizer.step()


def as_robo_orchard(data: Batches) -> None:
    """Train with RoboOrchard's trainer."""
    from accelerate import Accelerator

    model = Net()
    HookBasedTrainer(
        model=model,
        dataloader=data,
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
        accelerator=Accelerator(cpu=True),
        batch_processor=SimpleBatchProcessor.from_callable(lambda model, batch: (None, loss_of(model, batch))),
        max_epoch=1,
    )()


class Case(NamedTuple):
    """A training function, and the names of the cases to compare it with."""

    train: Callable[[Batches], None]
    against: tuple[str, ...] = ()


NO_HOOKS, RECORDED, KEPT = "hookline, no hooks", "hookline, recording", "hookline, recording, gradients kept"
DEFAULT = "hookline, default hooks"
ACCELERATE = "by hand, accelerate"
CASES = {
    NO_HOOKS: Case(lambda data: natively(data, NO_DEFAULT_HOOKS)),
    "mmengine, no hooks": Case(lambda data: as_mmengine(data, NO_DEFAULT_HOOKS), (NO_HOOKS,)),
    "pointrix, no hooks": Case(as_pointrix, (NO_HOOKS,)),
    RECORDED: Case(lambda data: natively(data, RECORDING)),
    # iMIX keeps gradients for hooks until the next update. In such a small step, the memory that they use shows.
    KEPT: Case(lambda data: natively(data, RECORDING, keep_gradients=True), (RECORDED,)),
    "imix, minimal hooks": Case(as_imix, (KEPT,)),
    DEFAULT: Case(lambda data: natively(data, None)),
    "mmengine, default hooks": Case(lambda data: as_mmengine(data, None), (DEFAULT,)),
    ACCELERATE: Case(with_accelerate),
    "robo_orchard, minimal hooks": Case(as_robo_orchard, (NO_HOOKS, ACCELERATE)),
}

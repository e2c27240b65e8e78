"""Engines of iMIX, on several processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hookline.dialects.imix.engine.base_engine import EngineBase
from hookline.dialects.imix.engine.hooks import EvaluateHook, HookBase, OptimizerHook
from hookline.dialects.imix.engine.imix_engine import imixEngine
from hookline.errors import ConfigError
from tests.distributed.cases import main
from tests.distributed.cases import seen as seen_by


class Acts(HookBase):
    """Fails in one process, after one iteration."""

    def __init__(self, iteration: int = -1, rank: int = 0) -> None:
        self.iteration, self.rank = iteration, rank

    def after_train_iter(self) -> None:
        """Fail."""
        if self.trainer.iter == self.iteration and self.trainer.runner.rank == self.rank:
            raise ValueError("planted")


class Own(EngineBase):
    """An engine with its own step, which calls `self.model` as in iMIX."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.model, self.data_loader = net(), data(8)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.work_dir, self.quiet, self.device = folder, True, "cpu"
        self.register_hooks([OptimizerHook()])

    def run_train_iter(self, batch_data: Any, data_time: float) -> None:
        """Compute the loss."""
        self.output = {"loss": nn.functional.cross_entropy(self.model(batch_data[0]), batch_data[1])}


def net() -> nn.Module:
    """Return the model."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def data(batch: int) -> DataLoader[Any]:
    """Return a loader of which all processes together take batches of this size."""
    torch.manual_seed(1)
    samples = TensorDataset(torch.randn(40, 8), torch.randint(3, (40,)))
    return DataLoader(samples, batch_size=batch // int(os.environ.get("WORLD_SIZE", "1")), shuffle=True)


def build(folder: str, hooks: list[Any], **more: Any) -> imixEngine:
    """Return an engine that trains two epochs of windows of two batches."""
    cfg = {
        "work_dir": f"{folder}/run",
        "total_epochs": 2,
        "quiet": True,
        "model_device": "cpu",
        "gradient_accumulation_steps": 2,
        "optimizer": {"type": "SGD", "lr": 0.1, "momentum": 0.9},
        "lr_config": None,
        "log_config": {"period": 2, "hooks": [{"type": "JSONLoggerHook"}]},
        "custom_hooks": hooks,
    }
    return imixEngine(cfg, model=net(), data_loader=data(8), loss_fn=nn.CrossEntropyLoss(), **more)


def seen(engine: Any) -> dict[str, Any]:
    """Return what an engine has come to."""
    files = sorted(path.name for path in Path(engine.work_dir).iterdir() if path.suffix in (".pth", ".json"))
    return seen_by(engine.runner) | {"files": files, "counted": [engine.iter, engine.max_iter]}


def train(folder: str) -> dict[str, Any]:
    """Train with a config, with accumulation, and with an evaluation that returns something else in each process."""
    scores = [2.0, 1.0] if os.environ.get("RANK", "0") == "0" else [5.0, 9.0]
    evaluate = EvaluateHook(lambda model: {"score": scores.pop(0)})
    engine = build(folder, [evaluate])
    engine.train()
    own = Own(f"{folder}/own")
    own.train_by_epoch(0, 2)
    assert evaluate.best is not None
    best = evaluate.best["metrics"]
    return seen(engine) | {"best": best, "own": seen(own)["weights"], "refused": refused(folder)}


def refused(folder: str) -> str:
    """Return why a function that calls the model without its wrapper is refused."""
    model = net()
    engine = build(
        f"{folder}/more", [], batch_processor=lambda batch: nn.functional.cross_entropy(model(batch[0]), batch[1])
    )
    try:
        engine.train()
    except ConfigError as error:
        return str(error)
    return ""


def fail(folder: str) -> dict[str, Any]:
    """Fail in the second process."""
    build(folder, [Acts(3, 1)]).train()
    return {}


if __name__ == "__main__":
    main(globals())

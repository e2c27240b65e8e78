"""A run that records the modes of its modules, for the comparison with the mmengine package."""

from __future__ import annotations

import importlib
import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

CONFIGS: list[dict[str, Any]] = [
    {"by_epoch": True, "max_epochs": 2},
    {"by_epoch": False, "max_iters": 3, "val_interval": 2},
]


def collate(samples: list[Tensor]) -> dict[str, Tensor]:
    return {"inputs": torch.stack(samples)}


def modes(package: str, train_cfg: dict[str, Any], hooked: bool) -> list[Any]:
    """Return the points, and at each forward pass the modes of the model and of a norm in it.

    The norm is in evaluation mode when training starts. If `hooked`, a hook also changes modes at several points.
    """
    runner, model, hooks, evaluator = (
        importlib.import_module(f"{package}.{name}") for name in ("runner", "model", "hooks", "evaluator")
    )
    seen: list[Any] = []

    class Net(model.BaseModel):  # type: ignore[name-defined, misc]  # the package is an argument
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.linear = nn.BatchNorm1d(2), nn.Linear(2, 1)
            self.norm.eval()

        def forward(self, inputs: Tensor, mode: str = "tensor") -> Any:
            seen.append((mode, self.training, self.norm.training))
            found = self.linear(self.norm(inputs))
            return {"loss": found.mean()} if mode == "loss" else [{} for _ in found]

    class Count(evaluator.BaseMetric):  # type: ignore[name-defined, misc]
        default_prefix = "x"

        def process(self, data_batch: Any, data_samples: Any) -> None:
            self.results.append(1)

        def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
            return {"count": len(results)}

    class Switch(hooks.Hook):  # type: ignore[name-defined, misc]
        def before_train_epoch(self, runner: Any) -> None:
            seen.append("before_train_epoch")
            runner.model.norm.eval()

        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            seen.append("after_train_iter")
            runner.model.eval()

        def before_val_epoch(self, runner: Any) -> None:
            seen.append("before_val_epoch")
            runner.model.train()

    samples: Any = [torch.zeros(2)] * 6
    data: Any = DataLoader(samples, batch_size=2, collate_fn=collate)
    with tempfile.TemporaryDirectory() as folder:
        runner.Runner(
            Net(),
            folder,
            train_dataloader=data,
            val_dataloader=data,
            train_cfg=train_cfg,
            val_cfg={},
            val_evaluator=[Count()],
            optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.1}},
            custom_hooks=[Switch()] if hooked else [],
            randomness={"seed": 0},
            log_level="ERROR",
            experiment_name=folder,  # the mmengine package shares its visualizers by this name
        ).train()
    return seen

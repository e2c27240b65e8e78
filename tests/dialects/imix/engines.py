"""Small engines for the tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hookline.dialects.imix.engine.hooks import HookBase
from hookline.dialects.imix.engine.imix_engine import imixEngine
from hookline.testing import toy_data, toy_model


def engine_in(
    folder: Path,
    batches: Iterable[Any] | int = 2,
    model: nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    loss_fn: Any = None,
    more: dict[str, Any] | None = None,
    **cfg: Any,
) -> imixEngine:
    """Return an engine on toy data. By default, it trains two epochs of two batches."""
    model = toy_model() if model is None else model
    settings: dict[str, Any] = {"work_dir": str(folder), "quiet": True, "model_device": "cpu", **cfg, **(more or {})}
    if "by_iter" not in settings:
        settings.setdefault("total_epochs", 2)
    return imixEngine(
        settings,
        model=model,
        data_loader=toy_data(batches) if isinstance(batches, int) else batches,
        optimizer=optimizer or torch.optim.SGD(model.parameters(), lr=0.1),
        loss_fn=loss_fn or nn.CrossEntropyLoss(),
    )


class Recorder(HookBase):
    """Records every point with the epoch, the iteration, and the iteration within the epoch."""

    def __init__(self, name: str = "", into: list[Any] | None = None) -> None:
        self.name = name
        self.seen: list[Any] = [] if into is None else into

    def note(self, point: str) -> None:
        at = (self.trainer.epoch, self.trainer.iter, self.trainer.inner_iter)
        self.seen.append((self.name, point) if self.name else (point, *at))

    def before_train(self) -> None:
        self.note("before_train")

    def after_train(self) -> None:
        self.note("after_train")

    def before_train_epoch(self) -> None:
        self.note("before_train_epoch")

    def after_train_epoch(self) -> None:
        self.note("after_train_epoch")

    def before_train_iter(self) -> None:
        self.note("before_train_iter")

    def after_train_iter(self) -> None:
        self.note("after_train_iter")


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    return all(a.equal(b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))

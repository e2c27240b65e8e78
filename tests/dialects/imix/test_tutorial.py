"""The examples of iMIX's tutorial about hooks, with only the imports changed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from hookline.dialects.imix.engine.hooks import HOOKS
from hookline.dialects.imix.engine.hooks import __all__ as exported
from hookline.dialects.imix.engine.hooks.base_hook import HookBase, PriorityStatus
from hookline.dialects.imix.engine.imix_engine import imixEngine
from hookline.testing import toy_data, toy_model

TABLE = [
    "AutogradAnomalyDetectHook",
    "AutogradProfilerHook",
    "CheckPointHook",
    "EvaluateHook",
    "IterationTimerHook",
    "LRSchedulerHook",
    "OptimizerHook",
    "Fp16OptimizerHook",
    "PeriodicLogger",
    "CommonMetricLoggerHook",
    "JSONLoggerHook",
    "TensorboardLoggerHook",
]


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(HOOKS, "_registered", dict(HOOKS._registered))
    return iter(())


class Averaging(nn.Module):
    """A model that averages its own weights."""

    def __init__(self) -> None:
        super().__init__()
        self.net = toy_model()
        self.averages: list[float] = []
        self.shadow: nn.Module | None = None

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.net(inputs)
        return scores

    def init_ema(self) -> None:
        object.__setattr__(self, "shadow", copy.deepcopy(self.net))

    def update_ema(self) -> None:
        assert self.shadow is not None
        with torch.no_grad():
            for mine, live in zip(self.shadow.parameters(), self.net.parameters(), strict=True):
                mine.lerp_(live, 0.5)
        self.averages.append(next(self.shadow.parameters()).sum().item())


def test_every_hook_of_the_table_is_there_by_its_name() -> None:
    for name in TABLE:
        assert name in exported
        assert HOOKS.get(name).__name__ == name
        assert issubclass(HOOKS.get(name), HookBase)  # type: ignore[arg-type]  # it is a class
    assert {member.name: member.value for member in PriorityStatus} == {
        "HIGHEST": 0,
        "HIGHER": 10,
        "HIGH": 20,
        "NORMAL": 30,
        "LOW": 40,
        "LOWER": 50,
        "LOWEST": 60,
    }


def test_a_hook_that_averages_as_the_tutorial_writes_it(tmp_path: Path) -> None:
    @HOOKS.register_module()
    class EMAIterHook(HookBase):
        def __init__(self) -> None:
            super().__init__()

        def before_train(self) -> None:
            if hasattr(self.trainer.model, "module"):
                self.trainer.model.module.init_ema()
            else:
                self.trainer.model.init_ema()

        def after_train_iter(self) -> None:
            if hasattr(self.trainer.model, "module"):
                self.trainer.model.module.update_ema()
            else:
                self.trainer.model.update_ema()

    custom_hooks = [{"type": "EMAIterHook", "level": 30}, {"type": "EMAEpochHook", "level": 40}]
    ended = []
    for number in range(2):  # first the tutorial's hook, then the built-in one with that name
        model = Averaging()
        engine = imixEngine(
            {"total_epochs": 1, "work_dir": str(tmp_path / str(number)), "custom_hooks": custom_hooks, "quiet": True},
            model=model,
            data_loader=toy_data(3),
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            loss_fn=nn.CrossEntropyLoss(),
        )
        engine.train()
        assert (type(engine.hooks[-2]) is EMAIterHook) == (number == 0)
        ended.append(model.averages)
        HOOKS._registered.pop("EMAIterHook", None)
    assert len(ended[0]) == 3
    assert ended[0] == ended[1]


def test_levels_decide_where_a_hook_runs(tmp_path: Path) -> None:
    ran: list[str] = []

    def noting(name: str) -> type[HookBase]:
        return type(name, (HookBase,), {"after_train_iter": lambda self: ran.append(name)})

    for name in ("First", "Second", "Third", "Fourth"):
        HOOKS.register_module()(noting(name))
    model = toy_model()
    custom_hooks = [
        {"type": "Fourth", "level": 60},
        {"type": "Third", "level": PriorityStatus.LOW},
        {"type": "Second"},
        {"type": "First", "level": "HIGHEST"},
    ]
    imixEngine(
        {"total_epochs": 1, "work_dir": str(tmp_path), "custom_hooks": custom_hooks, "quiet": True},
        model=model,
        data_loader=toy_data(1),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        loss_fn=nn.CrossEntropyLoss(),
    ).train()
    assert ran == ["First", "Second", "Third", "Fourth"]

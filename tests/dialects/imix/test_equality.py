"""The same training, natively and in this dialect, ends in the same weights and the same tensors in checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from hookline import EvalLoop, Optim, Runner, TrainLoop
from hookline.checkpoint import store
from hookline.dialects.imix.engine.imix_engine import imixEngine
from hookline.hooks import EMAHook
from hookline.metrics import accuracy
from hookline.steps import cross_entropy, predict
from hookline.testing import toy_data, toy_model

from .engines import same_weights


class Net(nn.Module):
    """Draws random numbers in training, and has buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.net = toy_model()

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.net(nn.functional.dropout(self.norm(inputs), 0.2, self.training))
        return scores


def loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(*toy_data(1, 50)[0]), batch_size=8, shuffle=True)


HELD_OUT = toy_data(4, seed=1)


def native(folder: Path) -> nn.Module:
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    Runner(
        model,
        train=TrainLoop(loader(), cross_entropy, max_epochs=3),
        val=EvalLoop(HELD_OUT, predict, metrics={"accuracy": accuracy}),
        optim=Optim(optimizer, schedulers=[scheduler], clip_norm=1.0),
        default_hooks={"checkpoint": {"save_best": "accuracy"}},
        custom_hooks=[EMAHook(momentum=0.05)],
        work_dir=folder,
        seed=7,
        device="cpu",
        quiet=True,
    ).train()
    return model


def in_dialect(folder: Path) -> nn.Module:
    model = Net()

    def evaluate(model: nn.Module) -> dict[str, Tensor]:
        right = [(model(inputs).argmax(1) == target).float().mean() for inputs, target in HELD_OUT]
        return {"accuracy": torch.stack(right).mean()}

    cfg = {
        "total_epochs": 3,
        "work_dir": str(folder),
        "seed": 7,
        "model_device": "cpu",
        "quiet": True,
        "optimizer": {"type": "AdamW", "lr": 0.02},
        "optimizer_config": {"grad_clip": {"max_norm": 1.0}},
        "lr_config": {"policy": "StepLR", "step_size": 1, "gamma": 0.5, "by_epoch": True},
        "custom_hooks": [
            {"type": "EMAIterHook", "momentum": 0.05},
            {"type": "EvaluateHook", "eval_function": evaluate},
        ],
    }
    return imixEngine(cfg, model=model, data_loader=loader(), loss_fn=nn.CrossEntropyLoss()).train()


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return list(one) == list(other) and all(one[name].equal(other[name]) for name in one)


def test_weights_checkpoints_averages_and_the_best_are_the_same_to_the_bit(tmp_path: Path) -> None:
    theirs, ours = native(tmp_path / "native"), in_dialect(tmp_path / "imix")
    assert same_weights(ours, theirs)
    best = next((tmp_path / "native").glob("best_accuracy_epoch_*.pth"))
    pairs = {f"epoch_{epoch + 1}.pth": f"Net_epoch{epoch}_model.pth" for epoch in range(3)}
    for native_name, name in (pairs | {best.name: "best_result.pth"}).items():
        one, other = (
            store.read(tmp_path / "native" / native_name, sealed=True),
            store.read(tmp_path / "imix" / name, sealed=True),
        )
        assert same(one["state_dict"], other["state_dict"]), name
        assert same(one["hooks"]["EMAHook"]["averaged"], other["hooks"]["EMAIterHook"]["averaged"]), name
        torch.testing.assert_close(one["optimizer"], other["optimizer"], rtol=0, atol=0)

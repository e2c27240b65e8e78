"""The same training, natively and as MMEngine writes it, ends in the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from hookline import EvalLoop, Optim, Runner, TrainLoop
from hookline.hooks import EMAHook
from hookline.metrics import accuracy
from hookline.testing import toy_data
from tests.dialects.mmengine.parts import ToyNet, runner_of


def loader(seed: int, shuffle: bool) -> DataLoader[Any]:
    inputs, labels = (torch.cat(parts) for parts in zip(*toy_data(4, seed=seed), strict=True))
    return DataLoader(TensorDataset(inputs, labels), batch_size=8, shuffle=shuffle)


def train_natively(work_dir: Path, schedule: bool, accumulate: int) -> torch.nn.Module:
    model = ToyNet(dropout=0.2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)] if schedule else []
    return Runner(
        model,
        train=TrainLoop(loader(0, True), lambda model, batch: model(*batch, mode="loss"), max_epochs=3),
        val=EvalLoop(
            loader(1, False), lambda model, batch: (model(batch[0]), batch[1]), metrics={"accuracy": accuracy}
        ),
        optim=Optim(optimizer, schedulers=schedulers, accumulate=accumulate),
        custom_hooks=[EMAHook(momentum=0.1)],
        default_hooks={"checkpoint": {"save_best": "accuracy"}},
        work_dir=work_dir,
        seed=5,
        quiet=True,
    ).train()


def train_as_mmengine(work_dir: Path, schedule: bool, accumulate: int) -> torch.nn.Module:
    return runner_of(
        work_dir,
        model={"type": "ToyNet", "dropout": 0.2},
        train_dataloader=loader(0, True),
        val_dataloader=loader(1, False),
        train_cfg={"by_epoch": True, "max_epochs": 3, "val_interval": 1},
        optim_wrapper={
            "type": "OptimWrapper",
            "optimizer": {"type": "AdamW", "lr": 0.1},
            "accumulative_counts": accumulate,
        },
        param_scheduler={"type": "StepLR", "step_size": 1, "gamma": 0.5} if schedule else None,
        default_hooks={"checkpoint": {"type": "CheckpointHook", "interval": 1, "save_best": "accuracy"}},
        custom_hooks=[{"type": "EMAHook", "momentum": 0.1}],
        randomness={"seed": 5},
    ).train()


def tensors(value: Any, where: str = "") -> dict[str, torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return {where: value}
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    return {name: each for key, inner in pairs for name, each in tensors(inner, f"{where}/{key}").items()}


@pytest.mark.parametrize(("schedule", "accumulate"), [(False, 1), (True, 1), (True, 2)])
def test_weights_and_checkpoints_are_the_same_bits(tmp_path: Path, schedule: bool, accumulate: int) -> None:
    native, other = tmp_path / "native" / "run", tmp_path / "mmengine" / "run"
    one, two = train_natively(native, schedule, accumulate), train_as_mmengine(other, schedule, accumulate)
    assert tensors(dict(one.state_dict())).keys() == tensors(dict(two.state_dict())).keys()
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name]), name
    files = sorted(path.name for path in native.glob("*.pth"))
    assert files == sorted(path.name for path in other.glob("*.pth"))
    assert {"epoch_1.pth", "epoch_2.pth", "epoch_3.pth"} < set(files)
    assert any(name.startswith("best_accuracy_epoch_") for name in files)
    for name in files:
        found, same = (torch.load(folder / name, weights_only=True) for folder in (native, other))
        for part in ("state_dict", "optimizer", "hooks", "rng"):
            mine, theirs = tensors(found[part]), tensors(same[part])
            assert mine.keys() == theirs.keys()
            assert all(torch.equal(mine[key], theirs[key]) for key in mine), (name, part)
        assert any("averaged" in key for key in tensors(found["hooks"]))

"""The same training, natively and as RoboOrchard writes it, ends in the same weights and averages, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from accelerate.utils import set_seed  # type: ignore[import-untyped]
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader

from hookline import EvalLoop, Optim, Runner, TrainLoop
from hookline.averaging import ExponentialMovingAverage
from hookline.dialects.robo_orchard_lab.pipeline import HookBasedTrainer
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor import SimpleBatchProcessor
from hookline.dialects.robo_orchard_lab.pipeline.hooks import (
    HookContext,
    PipelineHookArgs,
    PipelineHooks,
    SaveModelConfig,
)
from hookline.hooks import EMAHook
from hookline.steps import cross_entropy, predict
from tests.dialects.robo_orchard_lab import parts

EPOCHS = 3


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))


def loader() -> DataLoader[Any]:
    return DataLoader(parts.dataset(), batch_size=parts.BATCH, shuffle=True)


def accuracy(scores: Any, target: Any) -> Any:
    return (scores.argmax(1) == target).float().mean()


class Averages(PipelineHooks):
    """An average of the weights, and the best of its models by accuracy, kept by a hook of the user's."""

    def __init__(self, average: ExponentialMovingAverage, best: dict[str, Any]) -> None:
        super().__init__()
        self.average = average
        self.best = best
        self.register_hook("on_step", HookContext.from_callable(after=self._average))
        self.register_hook("on_epoch", HookContext.from_callable(after=self._measure))

    def _average(self, args: PipelineHookArgs) -> None:
        self.average.update(args.model)

    def _measure(self, args: PipelineHookArgs) -> None:
        inputs, target = parts.dataset().tensors
        with self.average.swapped(args.model), torch.no_grad():
            found = float(accuracy(args.model(inputs), target))
        if found > self.best.get("accuracy", -1.0):
            state = {name: value.clone() for name, value in args.model.state_dict().items()}
            self.best.update(accuracy=found, epoch=args.epoch_id + 1, weights=state)


def test_native_and_dialect_end_in_the_same_weights(tmp_path: Path) -> None:
    set_seed(0)
    model = net()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    average, best = ExponentialMovingAverage(momentum=0.1), dict[str, Any]()
    HookBasedTrainer(
        model=model,
        dataloader=loader(),
        optimizer=optimizer,
        lr_scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5),
        accelerator=parts.accelerator(tmp_path / "dialect"),
        batch_processor=SimpleBatchProcessor.from_callable(lambda model, batch: (None, cross_entropy(model, batch))),
        max_epoch=EPOCHS,
        hooks=[Averages(average, best), SaveModelConfig()],
    )()

    native = net()
    native.load_state_dict(start)
    native_optimizer = torch.optim.SGD(native.parameters(), lr=0.1, momentum=0.9)
    ema = EMAHook(momentum=0.1)
    Runner(
        native,
        train=TrainLoop(loader(), step=cross_entropy, max_epochs=EPOCHS),
        val=EvalLoop([parts.dataset().tensors], step=predict, metrics={"accuracy": accuracy}),
        optim=Optim(native_optimizer, schedulers=[(torch.optim.lr_scheduler.StepLR(native_optimizer, 4, 0.5), "iter")]),
        default_hooks={"checkpoint": {"save_best": "accuracy"}},
        custom_hooks=[ema],
        work_dir=tmp_path / "native",
        seed=0,
        quiet=True,
    ).train()

    states = model.state_dict()
    assert all(torch.equal(states[name], value) for name, value in native.state_dict().items())
    with average.swapped(model), ema.average.swapped(native):
        assert parts.equal(list(model.parameters()), list(native.parameters()))
    (native_best,) = (tmp_path / "native").glob("best_accuracy_*.pth")
    assert native_best.name == f"best_accuracy_epoch_{best['epoch']}.pth"
    saved = torch.load(native_best, weights_only=True)["state_dict"]
    assert all(torch.equal(saved[name], value) for name, value in best["weights"].items())
    for epoch in range(EPOCHS):
        folder = tmp_path / "dialect" / "saved_models" / f"model_epoch_{epoch}_step_{parts.STEPS}"
        mine = load_file(folder / "0" / "model.safetensors")
        theirs = torch.load(tmp_path / "native" / f"epoch_{epoch + 1}.pth", weights_only=True)["state_dict"]
        assert all(torch.equal(mine[name], value) for name, value in theirs.items())

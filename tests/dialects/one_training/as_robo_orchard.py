"""The training as written for RoboOrchard: an accelerator, a batch processor, hooks on channels, and configs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from accelerate.utils import ProjectConfiguration, set_seed  # type: ignore[import-untyped]
from safetensors.torch import load_file
from torch import Tensor, nn

from hookline.checkpoint import store
from hookline.common.averaging import ExponentialMovingAverage
from hookline.dialects.robo_orchard_lab.pipeline import HookBasedTrainer
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor import SimpleBatchProcessor
from hookline.dialects.robo_orchard_lab.pipeline.hooks import SaveCheckpointConfig, ValidationHookConfig
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import (
    HookContext,
    PipelineHookArgs,
    PipelineHooks,
    PipelineHooksConfig,
)
from tests.dialects.one_training import shared


class Classify(SimpleBatchProcessor):
    def forward(self, model: Callable[..., Any], batch: Any) -> tuple[Any, Tensor]:
        inputs, target = batch
        scores = model(inputs)
        return scores, nn.functional.cross_entropy(scores, target)


class Average(PipelineHooks):
    """hookline's average, on the channels of this dialect. Saves the weights whose average has the best accuracy."""

    def __init__(self, cfg: AverageConfig) -> None:
        super().__init__()
        self.average = ExponentialMovingAverage(cfg.momentum)
        self.model: Any = None
        self.best, self.best_epoch = -1.0, 0
        self.register_hook("on_step", HookContext.from_callable(after=self._update))
        self.register_hook("on_epoch", HookContext.from_callable(after=self._keep_best))

    def _update(self, args: PipelineHookArgs) -> None:
        self.model = args.accelerator.unwrap_model(args.model)
        self.average.update(self.model)

    def measure(self, model: nn.Module) -> None:
        """Measure the accuracy, as the validation callback, which runs before the user's hooks."""
        with self.average.swapped(model):
            self.measured = float(shared.measure(model))

    def _keep_best(self, args: PipelineHookArgs) -> None:
        if self.measured > self.best:
            self.best, self.best_epoch = self.measured, args.epoch_id + 1
            args.accelerator.save_model(args.model, f"{args.accelerator.project_dir}/best")

    def state_dict(self) -> dict[str, Any]:
        return self.average.state_dict(self.model)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.average.load_state_dict(state, self.model)


class AverageConfig(PipelineHooksConfig[Average]):
    class_type: type[Average] = Average
    momentum: float


def train(folder: Path, schedule: Callable[[torch.optim.Optimizer], Any] = lambda optimizer: None) -> shared.Ended:
    """Train, with a scheduler if one is given."""
    set_seed(shared.SEED)
    net = shared.Net()
    optimizer = shared.sgd(net)
    average = AverageConfig(momentum=shared.AVERAGED)()
    project = ProjectConfiguration(project_dir=str(folder), automatic_checkpoint_naming=True, total_limit=32)
    HookBasedTrainer(
        model=net,
        dataloader=shared.train_loader(),
        optimizer=optimizer,
        lr_scheduler=schedule(optimizer),
        accelerator=Accelerator(cpu=True, project_config=project),
        batch_processor=Classify(),
        max_epoch=shared.EPOCHS,
        validation=ValidationHookConfig(eval_callback=average.measure, epoch_eval_freq=1),
        hooks=[average, SaveCheckpointConfig(save_when_loop_end=False)],
    )()
    with average.average.swapped(net):
        averaged = shared.tensors(dict(net.named_parameters()))
    checkpoints = {
        str(epoch): _read(folder / "checkpoints" / f"checkpoint_{epoch - 1}") for epoch in range(1, shared.EPOCHS + 1)
    }
    # The best file holds only the weights. The rest of the state is in the checkpoint of that epoch.
    best = shared.tensors({"weights": load_file(folder / "best" / "model.safetensors")})
    checkpoints["best"] = checkpoints[str(average.best_epoch)] | best
    return shared.Ended(shared.tensors(dict(net.state_dict())), averaged, average.best_epoch, checkpoints)


def _read(folder: Path) -> dict[str, Tensor]:
    ours = store.read(folder / "trainer_state.pth", sealed=True)
    return shared.checkpoint_tensors(
        load_file(folder / "model.safetensors"),
        torch.load(folder / "optimizer.bin", weights_only=True),
        ours["hooks"]["Average"],
        store.read(folder / "trainer_rng_0.pth", sealed=True)["rng"],
    )

"""Train a line through noisy points, written for RoboOrchard: settings, a batch processor, hooks."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed
from robo_orchard_core.utils.cli import SettingConfig, pydantic_from_argparse
from robo_orchard_lab.pipeline import HookBasedTrainer
from robo_orchard_lab.pipeline.batch_processor import SimpleBatchProcessor
from robo_orchard_lab.pipeline.hooks import SaveCheckpointConfig
from robo_orchard_lab.pipeline.hooks.mixin import HookContext, PipelineHooks, PipelineHooksConfig
from torch.utils.data import DataLoader, TensorDataset


class Settings(SettingConfig):
    workspace: str
    max_epoch: int = 2


class Say(PipelineHooks):
    def __init__(self, cfg):
        super().__init__()
        self.word, self.loss = cfg.word, None
        self.register_hook("on_step", HookContext.from_callable(after=self.keep))
        self.register_hook("on_epoch", HookContext.from_callable(after=self.say))

    def keep(self, args):
        self.loss = args.reduce_loss

    def say(self, args):
        print(f"{self.word} {args.epoch_id}: good {self.loss.item() < 0.01}")


class SayConfig(PipelineHooksConfig[Say]):
    class_type: type[Say] = Say
    word: str = "epoch"


class Fit(SimpleBatchProcessor):
    def forward(self, model, batch):
        x, y = batch
        return None, torch.nn.functional.mse_loss(model(x), y)


def main(settings):
    set_seed(0)
    x = torch.rand(100, 1)
    net = torch.nn.Linear(1, 1)
    project = ProjectConfiguration(project_dir=settings.workspace, automatic_checkpoint_naming=True, total_limit=32)
    trainer = HookBasedTrainer(
        model=net,
        dataloader=DataLoader(TensorDataset(x, 2 * x + 1), batch_size=10, shuffle=True),
        optimizer=torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.5),
        accelerator=Accelerator(cpu=True, project_config=project),
        batch_processor=Fit(),
        max_epoch=settings.max_epoch,
        hooks=[SayConfig(), SaveCheckpointConfig()],
    )
    trainer()


if __name__ == "__main__":
    main(pydantic_from_argparse(Settings, argparse.ArgumentParser()))

"""Move points to a target, written for Pointrix: a launch script with a config and a hook."""

import sys

import torch
from pointrix.engine.default_trainer import DefaultTrainer
from pointrix.hook import HOOK_REGISTRY, Hook
from pointrix.model import MODEL_REGISTRY
from pointrix.optimizer import parse_optimizer
from pointrix.utils.config import load_config

CONFIG = """
name: points
trainer:
  max_steps: 80
  val_interval: 40
  seed: 0
  device: cpu
  hooks:
    say: {name: Say}
    save: {name: CheckPointHook, save_step: 40}
"""


class Targets:
    def __init__(self):
        self.validation_dataset = [torch.ones(5, 2)]

    def next_train(self, step):
        return self.validation_dataset[0]

    def next_val(self, index):
        return self.validation_dataset[index]


@MODEL_REGISTRY.register()
class Points(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.position = torch.nn.Parameter(torch.zeros(5, 2))

    def forward(self, batch):
        return self.position

    def get_loss_dict(self, found, batch):
        return {"loss": torch.nn.functional.mse_loss(found, batch)}

    def get_metric_dict(self, found, batch):
        return {"distance": (found - batch).abs().max()}


@HOOK_REGISTRY.register()
class Say(Hook):
    def after_val_iter(self, trainner):
        print(f"after {trainner.global_step - 1} steps: close {bool(trainner.metric_dict['distance'] < 0.1)}")


class Trainer(DefaultTrainer):
    def __init__(self, *given):
        super().__init__(*given)
        self.datapipeline, self.model = Targets(), Points()
        self.optimizer = parse_optimizer(
            {"optimizer_1": {"type": "BaseOptimizer", "name": "Adam", "args": {"lr": 0.05}}}, self.model
        )


if __name__ == "__main__":
    cfg = load_config(CONFIG, from_string=True, cli_args=[f"exp_dir={sys.argv[1]}"])
    trainer = Trainer(cfg.trainer, sys.argv[1])
    trainer.train_loop()

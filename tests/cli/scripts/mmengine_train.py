"""Train a line through noisy points, written for MMEngine."""

import argparse

import torch
from mmengine.evaluator import BaseMetric
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.registry import HOOKS, METRICS
from mmengine.runner import Runner
from torch.utils.data import Dataset


class Line(Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(size)
        self.x = torch.rand(size, 1, generator=generator)
        self.y = 2 * self.x + 1 + 0.01 * torch.randn(size, 1, generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class LinearModel(BaseModel):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, x, y, mode="tensor"):
        found = self.linear(x)
        if mode == "loss":
            return {"loss": torch.nn.functional.mse_loss(found, y)}
        return (found, y) if mode == "predict" else found


@METRICS.register_module()
class SquaredError(BaseMetric):
    def process(self, data_batch, data_samples):
        found, y = data_samples
        self.results.append({"size": len(y), "error": ((found - y) ** 2).sum().item()})

    def compute_metrics(self, results):
        return {"mse": sum(each["error"] for each in results) / sum(each["size"] for each in results)}


@HOOKS.register_module()
class Say(Hook):
    priority = "LOW"

    def __init__(self, what):
        self.what = what

    def after_train_epoch(self, runner):
        print(f"{self.what} {runner.epoch + 1}/{runner.max_epochs}")

    def after_val_epoch(self, runner, metrics=None):
        self.error = metrics["mse"]

    def after_train(self, runner):
        print(f"good {self.error < 0.01}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work-dir", required=True)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(0)
    loader = {"batch_size": 10, "num_workers": options.workers, "collate_fn": {"type": "default_collate"}}
    runner = Runner(
        model=LinearModel(),
        work_dir=options.work_dir,
        train_dataloader={**loader, "dataset": Line(100), "sampler": {"type": "DefaultSampler", "shuffle": True}},
        train_cfg={"by_epoch": True, "max_epochs": 3},
        val_dataloader={**loader, "dataset": Line(20), "sampler": {"type": "DefaultSampler", "shuffle": False}},
        val_cfg={},
        val_evaluator={"type": "SquaredError"},
        optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.5, "momentum": 0.5}},
        default_hooks={"checkpoint": {"type": "CheckpointHook", "interval": 1, "save_best": "mse", "rule": "less"}},
        custom_hooks=[{"type": "Say", "what": "epoch"}],
        randomness={"seed": 0},
        log_level="ERROR",
    )
    runner.train()


if __name__ == "__main__":
    main()

"""Observers that change a training, each in another way, and a config in which they do it."""

from __future__ import annotations

from pathlib import Path

#: The module of the project: a model with a buffer and a dropout, and the observers.
PROJECT = '''
import random
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

from hookline import Hook


def data():
    numbers = torch.arange(48.0).reshape(12, 4) / 48
    return TensorDataset(numbers, torch.arange(12) % 2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(4, 6), nn.BatchNorm1d(6)
        self.drop, self.last = nn.Dropout(0.3), nn.Linear(6, 2)

    def forward(self, features):
        return self.last(self.drop(torch.relu(self.norm(self.first(features)))))


def loss_of(model, batch):
    return {"loss": nn.functional.cross_entropy(model(batch[0]), batch[1])}


def noisy(model, batch):
    return {"loss": loss_of(model, batch)["loss"] * random.SystemRandom().random()}


class Looks(Hook):
    """Looks in step 3."""

    role = "observer"
    draws_random_numbers = False

    def is_due(self, runner):
        return runner.iter == 2


class Weights(Looks):
    def after_train_iter(self, runner):
        if self.is_due(runner):
            with torch.no_grad():
                runner.model.first.weight.mul_(2)


class Gradients(Looks):
    def before_optimizer_step(self, runner):
        if self.is_due(runner):
            runner.model.last.bias.grad[0] += 1e-3


class Optimizer(Looks):
    def after_train_iter(self, runner):
        if self.is_due(runner):
            for state in runner.optims.sole.optimizer.state.values():
                state["exp_avg"].zero_()


class Rate(Looks):
    def before_train_iter(self, runner):
        if self.is_due(runner):
            runner.optims.sole.optimizer.param_groups[0]["lr"] *= 2


class Mode(Looks):
    def after_train_iter(self, runner):
        if self.is_due(runner):
            runner.model.drop.eval()


class Buffer(Looks):
    def around_train_iter(self, runner):
        yield
        if self.is_due(runner):
            runner.model.norm.running_mean.zero_()


class Freezes(Looks):
    def before_train_iter(self, runner):
        if self.is_due(runner):
            runner.model.first.weight.requires_grad_(False)


class Random(Looks):
    def after_train_iter(self, runner):
        if self.is_due(runner):
            torch.rand(1)


class Batch(Looks):
    def before_train_iter(self, runner, data_batch):
        if self.is_due(runner):
            data_batch[0].add_(1)


class Loader(Looks):
    def after_train_iter(self, runner):
        if self.is_due(runner):
            runner.train_loop.dataloader.order.shuffle = False


class Modules(Looks):
    def after_train_iter(self, runner):
        if self.is_due(runner):
            runner.model.first.register_forward_hook(lambda module, inputs, outputs: outputs * 2)


class Other(Looks):
    def after_train_iter(self, runner):
        if self.is_due(runner):
            next(hook for hook in runner.hooks if isinstance(hook, Actor)).factor = 0.5


class Watched(Looks):
    def watches(self):
        from hookline.plan.modules import Watch

        yield Watch("first", "forward", self.seen)

    def seen(self, runner, module):
        if self.is_due(runner):
            with torch.no_grad():
                module.bias.add_(1)


class Evaluates(Looks):
    def after_val_epoch(self, runner):
        runner.model.norm.reset_running_stats()


class Actor(Hook):
    """Scales the batch, with a factor that it saves."""

    def __init__(self):
        self.factor = 1.0

    def before_train_iter(self, runner, data_batch):
        data_batch[0].mul_(self.factor)

    def state_dict(self):
        return {"factor": self.factor}

    def load_state_dict(self, state):
        self.factor = state["factor"]


class Clock(Hook):
    """Measures a time, and saves it."""

    def __init__(self):
        self.seconds = 0.0

    def after_train_iter(self):
        self.seconds = time.perf_counter()

    def state_dict(self):
        return {"seconds": self.seconds}

    def load_state_dict(self, state):
        self.seconds = state["seconds"]


class Forgets(Hook):
    """Counts steps in an attribute that it does not save, and in one that it saves."""

    def __init__(self):
        self.seen, self.kept, self.started, self.constant = [], 0, None, {1, 2}

    def before_train(self):
        self.started = 1.5

    def after_train_iter(self):
        self.seen.append(len(self.seen))
        self.kept += 1

    def state_dict(self):
        return {"kept": self.kept}

    def load_state_dict(self, state):
        self.kept = state["kept"]
'''

CONFIG = """
model: {{type: "project:Net"}}
train:
  dataloader: {{dataset: {{type: "project:data"}}, batch_size: 4, shuffle: true}}
  step: "project:{step}"
  max_epochs: 4
val: {{dataloader: {{dataset: {{type: "project:data"}}, batch_size: 6}}, step: project:loss_of}}
optim: {{optimizer: {{type: AdamW, lr: 0.01}}}}
device: cpu
custom_hooks: [{hooks}]
"""

#: What each observer changes first: the point, the step, the kind and the name. Those without a point do it elsewhere.
MEDDLERS = {
    "Weights": ("after_train_iter", 3, "parameter", "first.weight"),
    "Gradients": ("before_optimizer_step", 3, "gradient", "last.bias"),
    "Optimizer": ("after_train_iter", 3, "optimizer", "first.weight/exp_avg"),
    "Rate": ("before_train_iter", 3, "learning rate", "group 0 lr"),
    "Mode": ("after_train_iter", 3, "mode", "drop"),
    "Buffer": ("around_train_iter", 3, "buffer", "norm.running_mean"),
    "Freezes": ("before_train_iter", 3, "mode", "first.weight (requires_grad)"),
    "Random": ("after_train_iter", 3, "random numbers", "torch"),
    "Batch": ("before_train_iter", 3, "batch", "0"),
    "Loader": ("after_train_iter", 3, "loader", "order.shuffle"),
    "Other": ("after_train_iter", 3, "state of", "Actor/factor"),
    "Watched": ("the forward pass of module 'first'", 3, "parameter", "first.bias"),
}


def write(folder: Path, *hooks: str, step: str = "loss_of") -> Path:
    """Write the project, and return its config."""
    (folder / "project.py").write_text(PROJECT, encoding="utf-8")
    named = ", ".join(f'{{type: "project:{hook}"}}' for hook in hooks)
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(step=step, hooks=named), encoding="utf-8")
    return config

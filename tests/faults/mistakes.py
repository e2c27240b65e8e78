"""Mistakes of users: a module with them, and configs that name it."""

from __future__ import annotations

from tests.faults.cases import Case
from tests.faults.project import config

#: The end of a message about a failure while a validation batch is tried before training.
TRIED = (
    "\n  in the trial of val before training, batch 0, epoch=0 iter=0 rank=0\n  one batch of every validation and test "
    "set is tried before the first step; to train without this trial, set trial_batch: false (in Python: Runner(..., "
    "trial_batch=False))"
)
WHAT_TO_RETURN = (
    "return the loss as a tensor with one element, or a mapping with the key 'loss' (or with keys that contain 'loss', "
    "whose values are added up), or (outputs, loss)"
)

BAD = '''
"""Mistakes of users, each under the name of the mistake."""

import itertools
import os
import sys

import torch
from torch import nn

from hookline import Hook
from mynet import Data, Net, loss_of

count = itertools.count(1)


# -- steps

def vector(model, batch):
    return model(batch[0])[:, 0]

def nothing(model, batch):
    loss_of(model, batch)

def text(model, batch):
    return "0.5"

def without_loss(model, batch):
    return {"score": model(batch[0]).sum()}

def detached(model, batch):
    return loss_of(model, batch).detach()

def integer(model, batch):
    return 1

def number(model, batch):
    return loss_of(model, batch).item()

def three(model, batch):
    return 1, 2, 3

def nan(model, batch):
    return loss_of(model, batch) * float("nan")

def infinite(model, batch):
    return loss_of(model, batch) / 0

def nan_later(model, batch):
    return loss_of(model, batch) * (float("nan") if next(count) > 3 else 1)

def nan_once(model, batch):
    return loss_of(model, batch) + (float("nan") if next(count) == 3 else 0)

def two_parameters_more(model, batch, a, b):
    return loss_of(model, batch)

def fails(model, batch):
    raise KeyError("no such column")

def ends_early(model, batch):
    raise StopIteration

def exits(model, batch):
    sys.exit(0)

def one_thing(model, batch):
    return model(batch[0])


# -- models

class Plain:
    pass

class Exits(Net):
    def __init__(self):
        sys.exit(0)

class Empty(nn.Module):
    def forward(self, inputs):
        return inputs[:, :2]


# -- data

class Raises(Data):
    def __getitem__(self, index):
        if index == 5:
            raise OSError("sample 5 cannot be read")
        return super().__getitem__(index)

class Stops(Data):
    def __getitem__(self, index):
        if index == 5:
            raise StopIteration
        return super().__getitem__(index)

class Dies(Data):
    def __getitem__(self, index):
        os._exit(0)

class Uneven(Data):
    def __getitem__(self, index):
        return torch.zeros(index + 1), 0

class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(())

def batches():
    data = Data()
    return [tuple(torch.stack([torch.as_tensor(part) for part in column])
            for column in zip(*[data[index] for index in (start, start + 1)])) for start in (0, 2, 4, 6)]

def used_up():
    yield from batches()

def gives_nothing():
    yield from ()

def nothing_at_all():
    return None

class Liar:
    def __len__(self):
        return 9

    def __iter__(self):
        return iter(batches())

def liar():
    return Liar()


# -- metrics

def broken_metric(preds, target):
    raise ZeroDivisionError("no samples")

def text_metric(preds, target):
    return "good"


# -- hooks

class Misspelt(Hook):
    def after_train_itr(self, runner): ...

class WrongArgument(Hook):
    def after_train_iter(self, runner, output): ...

class WrongFirst(Hook):
    def after_train_iter(self, batch_idx): ...

class Generates(Hook):
    def before_train(self, runner):
        yield

class NoYield(Hook):
    def around_train(self, runner): ...

class After(Hook):
    runs_after = ("LogerHook",)
    def after_train_iter(self, runner): ...

class TooEarly(Hook):
    priority = "HIGHEST"
    runs_after = ("LoggerHook",)
    def after_train_iter(self, runner): ...

class CircleA(Hook):
    runs_after = ("CircleB",)
    def after_train_iter(self, runner): ...

class CircleB(Hook):
    runs_after = ("CircleA",)
    def after_train_iter(self, runner): ...

class OddPriority(Hook):
    priority = "HIGHER"
    def after_train_iter(self, runner): ...

class OddRole(Hook):
    role = "obsrver"
    def after_train_iter(self, runner): ...

class OddState(Hook):
    def state_dict(self):
        return {"seen": {1, 2}}
    def load_state_dict(self, state): ...

class Raising(Hook):
    def after_train_iter(self, runner, batch_idx):
        if batch_idx == 1:
            raise RuntimeError("the meter is gone")

class Exiting(Hook):
    def after_train_iter(self, runner):
        sys.exit()

class CannotBeMade(Hook):
    def __init__(self):
        raise ValueError("no licence")

class AsksForValidation(Hook):
    def after_train_iter(self, runner):
        runner.request_val()

class UnknownScalar(Hook):
    def after_train_iter(self, runner):
        runner.hub.get_scalar("train/los")

class CallsUnknownPoint(Hook):
    def after_train_iter(self, runner):
        runner.call_hook("after_rendr")
'''


def training(**changes: str | None) -> str:
    """Return the `train` section with other values for some keys."""
    parts = {
        "dataloader": '{dataset: {type: "mynet:Data"}, batch_size: 2}',
        "step": '"mynet:loss_of"',
        "max_epochs": "2",
        **changes,
    }
    return "{" + ", ".join(f"{key}: {value}" for key, value in parts.items() if value is not None) + "}"


def evaluation(**changes: str | None) -> str:
    """Return the `val` or `test` section with other values for some keys."""
    parts = {
        "dataloader": '{dataset: {type: "mynet:Data"}, batch_size: 4}',
        "step": '"mynet:predict"',
        "metrics": "{accuracy: accuracy}",
        **changes,
    }
    return "{" + ", ".join(f"{key}: {value}" for key, value in parts.items() if value is not None) + "}"


def bad(name: str, code: int, says: str, **changes: str | None) -> Case:
    """Return a case with a config and the module of mistakes next to it."""
    return Case(name, code, says, config=config(**changes), files={"bad.py": BAD})


def raising(name: str, code: int, *mentions: str, **changes: str | None) -> Case:
    """Return a case in which user code raises: the traceback is shown, with a note about the location."""
    files = {"bad.py": BAD}
    return Case(name, code, mentions=mentions, config=config(**changes), files=files, traceback=True)

"""What the five have in common: data, net, numbers, and what is compared of them afterwards."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from hookline.engine.metrics import accuracy
from hookline.testing import toy_data

SEED, EPOCHS, BATCH = 7, 3, 8
RATE, MOMENTUM, AVERAGED = 0.3, 0.9, 0.1


def train_set() -> TensorDataset:
    """50 samples: the last batch of an epoch is not full."""
    return TensorDataset(*toy_data(1, 50)[0])


def held_out() -> TensorDataset:
    """32 samples, so that a share of them is the same number however it is added up."""
    return TensorDataset(*toy_data(1, 32, seed=1)[0])


def train_loader() -> DataLoader[Any]:
    return DataLoader(train_set(), batch_size=BATCH, shuffle=True)


def val_loader() -> DataLoader[Any]:
    return DataLoader(held_out(), batch_size=BATCH)


#: Batches of an epoch.
STEPS = len(train_loader())


def put_layers(net: nn.Module) -> None:
    """Layers with buffers, and with random numbers in training; they have the same weights every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net.norm, net.dropout = nn.BatchNorm1d(4), nn.Dropout(0.2)
        net.first, net.last = nn.Linear(4, 8), nn.Linear(8, 2)


def scores_of(net: Any, inputs: Tensor) -> Tensor:
    """What the layers say."""
    scores: Tensor = net.last(net.first(net.dropout(net.norm(inputs))).relu())
    return scores


class Net(nn.Module):
    """The net, for all who take any module."""

    def __init__(self) -> None:
        super().__init__()
        put_layers(self)

    def forward(self, inputs: Tensor) -> Tensor:
        return scores_of(self, inputs)


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM)


def measure(net: Any) -> Tensor:
    """The accuracy on held-out data, for those whose evaluation is a function of the user's."""
    with torch.no_grad():
        return torch.stack([accuracy(net(inputs), target) for inputs, target in val_loader()]).mean()


class Ended(NamedTuple):
    """How a training has ended: tensors by name, also of its checkpoints `1`, `2`, `3` and `best`."""

    weights: dict[str, Tensor]
    averaged: dict[str, Tensor]
    best_epoch: int
    checkpoints: dict[str, dict[str, Tensor]]


def tensors(value: Any, where: str = "") -> dict[str, Tensor]:
    """All tensors inside of something, by the way to them."""
    if isinstance(value, Tensor):
        return {where: value.clone()}
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    return {name: each for key, inner in pairs for name, each in tensors(inner, f"{where}/{key}").items()}


def checkpoint_tensors(weights: Any, optimizer: Any, average: Any, rng: Any) -> dict[str, Tensor]:
    """What a checkpoint holds of a training, wherever it keeps it."""
    return tensors({"weights": weights, "optimizer": optimizer["state"], "average": average["averaged"], "rng": rng})


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """The same tensors under the same names, bit for bit."""
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def assert_ended_alike(one: Ended, other: Ended) -> None:
    """The same weights, averages, best epoch and checkpoints."""
    assert_same(one.weights, other.weights)
    assert_same(one.averaged, other.averaged)
    assert one.best_epoch == other.best_epoch
    assert one.checkpoints.keys() == other.checkpoints.keys()
    for name, found in one.checkpoints.items():
        assert_same(found, other.checkpoints[name])

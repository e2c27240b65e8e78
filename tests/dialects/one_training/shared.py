"""The common parts of the five trainings: data, net, settings, and the comparison of the results."""

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
    """Return 50 samples, so that the last batch of an epoch is not full."""
    return TensorDataset(*toy_data(1, 50)[0])


def held_out() -> TensorDataset:
    """Return 32 samples, so that the accuracy is the same number in any order of summation."""
    return TensorDataset(*toy_data(1, 32, seed=1)[0])


def train_loader() -> DataLoader[Any]:
    return DataLoader(train_set(), batch_size=BATCH, shuffle=True)


def val_loader() -> DataLoader[Any]:
    return DataLoader(held_out(), batch_size=BATCH)


#: The number of batches in an epoch.
STEPS = len(train_loader())


def put_layers(net: nn.Module) -> None:
    """Add layers with buffers and with randomness in training. Their initial weights are always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net.norm, net.dropout = nn.BatchNorm1d(4), nn.Dropout(0.2)
        net.first, net.last = nn.Linear(4, 8), nn.Linear(8, 2)


def scores_of(net: Any, inputs: Tensor) -> Tensor:
    """Return the scores that the layers compute."""
    scores: Tensor = net.last(net.first(net.dropout(net.norm(inputs))).relu())
    return scores


class Net(nn.Module):
    """The net, for systems that accept any module."""

    def __init__(self) -> None:
        super().__init__()
        put_layers(self)

    def forward(self, inputs: Tensor) -> Tensor:
        return scores_of(self, inputs)


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM)


def measure(net: Any) -> Tensor:
    """Return the accuracy on held-out data, for systems in which the user writes the evaluation."""
    with torch.no_grad():
        return torch.stack([accuracy(net(inputs), target) for inputs, target in val_loader()]).mean()


class Ended(NamedTuple):
    """The results of a training: tensors by name, including its checkpoints `1`, `2`, `3` and `best`."""

    weights: dict[str, Tensor]
    averaged: dict[str, Tensor]
    best_epoch: int
    checkpoints: dict[str, dict[str, Tensor]]


def tensors(value: Any, where: str = "") -> dict[str, Tensor]:
    """Return all tensors inside a nested structure, by their path."""
    if isinstance(value, Tensor):
        return {where: value.clone()}
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    return {name: each for key, inner in pairs for name, each in tensors(inner, f"{where}/{key}").items()}


def checkpoint_tensors(weights: Any, optimizer: Any, average: Any, rng: Any) -> dict[str, Tensor]:
    """Return the tensors in a checkpoint, in the same layout for all systems."""
    return tensors({"weights": weights, "optimizer": optimizer["state"], "average": average["averaged"], "rng": rng})


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """Check that both have the same tensors under the same names, bit for bit."""
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def assert_ended_alike(one: Ended, other: Ended) -> None:
    """Check that both have the same weights, averages, best epoch and checkpoints."""
    assert_same(one.weights, other.weights)
    assert_same(one.averaged, other.averaged)
    assert one.best_epoch == other.best_epoch
    assert one.checkpoints.keys() == other.checkpoints.keys()
    for name, found in one.checkpoints.items():
        assert_same(found, other.checkpoints[name])

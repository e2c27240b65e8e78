"""The weights of a model at a moment."""

from __future__ import annotations

import torch
from torch import nn

State = dict[str, torch.Tensor]


def copied(model: nn.Module) -> State:
    """Return a copy of the state of a model."""
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_same(ours: State, theirs: State) -> None:
    """Compare names, order and bits."""
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        assert ours[name].equal(value), name

"""Training and evaluation modes of a model's modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Training with gradients, or evaluation without; afterwards every module is in the mode it was in.

    A model that is in training mode keeps the modes of its parts: some may be frozen on purpose.
    """
    import torch  # inside, because hooks import this file and their parameters are read without torch

    was = [(module, module.training) for module in model.modules()]
    if model.training != training:
        model.train(training)
    try:
        with torch.set_grad_enabled(training):
            yield
    finally:
        for module, mode in was:
            module.training = mode

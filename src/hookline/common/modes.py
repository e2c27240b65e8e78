"""Training and evaluation mode of a model's modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Put the model in training mode with gradients, or in evaluation mode without.

    Every module's mode is restored afterwards. If the model is already in the requested mode, its modules keep
    their modes: some may be frozen on purpose.
    """
    import torch  # imported here, because hooks import this file and their parameters must be readable without torch

    was = [(module, module.training) for module in model.modules()]
    if model.training != training:
        model.train(training)
    try:
        with torch.set_grad_enabled(training):
            yield
    finally:
        for module, mode in was:
            module.training = mode

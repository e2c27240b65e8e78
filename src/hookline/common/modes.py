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
    their modes: some may be frozen on purpose. But if a class in the model overrides `train`, that method decides: it
    is called in any case, and once more afterwards, to switch back.
    """
    import torch  # imported here, because hooks import this file and their parameters must be readable without torch

    was = [(module, module.training) for module in model.modules()]
    overridden = any(_overrides_train(module) for module, _ in was)
    trained_before = model.training
    if overridden or trained_before != training:
        _switch(model, training)
    try:
        with torch.set_grad_enabled(training):
            yield
    finally:
        for module, mode in was:
            module.training = mode
        if overridden and trained_before != training:
            _switch(model, trained_before)


def _switch(model: nn.Module, training: bool) -> None:
    if training:
        model.train()
    else:
        model.eval()


def _overrides_train(module: nn.Module) -> bool:
    from torch import nn

    return any(
        name in module.__dict__ or getattr(type(module), name) is not getattr(nn.Module, name)
        for name in ("train", "eval")
    )

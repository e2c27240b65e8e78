"""Training and evaluation mode of a model's modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from torch import nn

# Several hooks may freeze the same parameter or module. It carries the number of hooks that do, so that they need not
# know each other: the first one turns it off, and the last one turns it on again.
HOLDERS = "_hookline_frozen_by"
# The modules of torch whose `train` only sets the modes of all inner modules.
FORWARDING = ("torch.nn.modules.module", "torch.nn.parallel.distributed")
# For models that are not in training now, because they are evaluated, or because training has ended: the modules that
# are in evaluation mode in training.
LEFT: WeakKeyDictionary[nn.Module, list[str]] = WeakKeyDictionary()


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Put the model in training mode with gradients, or in evaluation mode without.

    Every module's mode is restored afterwards. If the model is already in the requested mode, its modules keep
    their modes: some may be frozen on purpose. But if a class in the model overrides `train`, that method decides: it
    is called in any case, and once more afterwards, to switch back.
    """
    import torch  # imported here, because hooks import this file and their parameters must be readable without torch

    was = [(module, module.training) for module in model.modules()]
    trained_before = model.training
    leaves_training = not training and model not in LEFT
    if leaves_training:
        LEFT[model] = _in_evaluation(model)
    elif training:
        LEFT.pop(model, None)
    switch_mode(model, training)
    try:
        with torch.set_grad_enabled(training):
            yield
    finally:
        if leaves_training:
            del LEFT[model]
        elif training:
            LEFT[model] = _in_evaluation(model)
        for module, mode in was:
            module.training = mode
        if trained_before != training and overrides_mode(model):
            switch_mode(model, trained_before)


def _in_evaluation(model: nn.Module) -> list[str]:
    """Return the modules in evaluation mode, by name. A module that a hook holds there does not count."""
    named = model.named_modules()
    return [name for name, module in named if not module.training and HOLDERS not in vars(module)]


def switch_mode(model: nn.Module, training: bool) -> None:
    """Put the model in a mode. If it is already in it, only a class that overrides `train` is asked again."""
    if model.training == training and not overrides_mode(model):
        return
    if training:
        train(model)
    else:
        model.eval()


def train(model: nn.Module) -> None:
    """Call `model.train()`, except that modules that a hook holds in evaluation mode stay in it."""
    model.train()
    for module in model.modules():
        if HOLDERS in vars(module):
            module.training = False


def overrides_mode(model: nn.Module) -> bool:
    """Return whether a module of the model has its own `train` or `eval`. Wrappers of torch only pass them on."""
    return any(
        name in vars(module) or getattr(type(module), name).__module__ not in FORWARDING
        for module in model.modules()
        for name in ("train", "eval")
    )

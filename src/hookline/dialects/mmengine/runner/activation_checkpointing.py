"""Compute the activations of modules again in the backward pass, instead of keeping them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any

from torch.utils.checkpoint import checkpoint

from hookline.dialects.mmengine.errors import ConfigValueError
from hookline.dialects.mmengine.not_included import not_included
from hookline.errors import did_you_mean

if TYPE_CHECKING:
    from torch import nn


def turn_on_activation_checkpointing(model: nn.Module, modules: Sequence[str] | str) -> None:
    """Let the modules with these names save memory: their forward pass runs again in the backward pass."""
    known = dict(model.named_modules())
    for name in [modules] if isinstance(modules, str) else modules:
        if name not in known:
            raise ConfigValueError(f"activation_checkpointing: no module '{name}'; {did_you_mean(name, known)}")
        known[name].forward = MethodType(_forward_twice, known[name])  # a bound method is copied with its module


def _forward_twice(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return checkpoint(partial(type(self).forward, self), *args, use_reentrant=False, **kwargs)


not_included(globals(), "wrap_forward")

"""Modules that initialize their own weights."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from torch import nn

from hookline.common.forwarding import forwarded
from hookline.dialects.mmengine.model.weight_init import PretrainedInit, initialize

__all__ = ["BaseModule", "ModuleDict", "ModuleList", "Sequential"]

log = logging.getLogger("hookline")


class BaseModule(nn.Module):
    """A module that initializes its weights as described in `init_cfg`.

    Args:
        init_cfg: A dict with the `type` of an initializer, or a list of them; see
            `hookline.dialects.mmengine.model.weight_init`.
    """

    def __init__(self, init_cfg: Mapping[str, Any] | list[Mapping[str, Any]] | None = None) -> None:
        super().__init__()
        self._is_init = False
        self.init_cfg = deepcopy(init_cfg)

    is_init: bool = forwarded("_is_init", "Return whether the weights were initialized.", settable=True)

    def init_weights(self) -> None:
        """Initialize the weights once.

        First, `init_cfg` is applied. Then the children initialize themselves. If `init_cfg` has pretrained weights,
        they are loaded at the end.
        """
        if self._is_init:
            log.warning("init_weights of %s was already called; the weights are not changed", type(self).__name__)
            return
        given = self.init_cfg or []
        described = [given] if isinstance(given, Mapping) else list(given)
        pretrained = [each for each in described if _is_pretrained(each)]
        initialize(self, [each for each in described if each not in pretrained])
        for child in self.children():
            begin = getattr(_without_wrapper(child), "init_weights", None)
            if begin is not None and not getattr(child, "is_init", False):
                begin()
        initialize(self, pretrained)
        self._is_init = True


def _without_wrapper(module: nn.Module) -> nn.Module:
    from hookline.dialects.mmengine.model.wrappers import is_model_wrapper

    if hasattr(module, "init_weights") or not is_model_wrapper(module):
        return module
    return module.module  # type: ignore[return-value]  # what every wrapper has


def _is_pretrained(described: Any) -> bool:
    return isinstance(described, Mapping) and described.get("type") in ("Pretrained", PretrainedInit)


class Sequential(BaseModule, nn.Sequential):
    """`nn.Sequential` with `init_cfg`."""

    def __init__(self, *args: Any, init_cfg: Any = None) -> None:
        BaseModule.__init__(self, init_cfg)
        nn.Sequential.__init__(self, *args)


class ModuleList(BaseModule, nn.ModuleList):
    """`nn.ModuleList` with `init_cfg`."""

    def __init__(self, modules: Iterable[nn.Module] | None = None, init_cfg: Any = None) -> None:
        BaseModule.__init__(self, init_cfg)
        nn.ModuleList.__init__(self, modules)


class ModuleDict(BaseModule, nn.ModuleDict):
    """`nn.ModuleDict` with `init_cfg`."""

    def __init__(self, modules: Mapping[str, nn.Module] | None = None, init_cfg: Any = None) -> None:
        BaseModule.__init__(self, init_cfg)
        nn.ModuleDict.__init__(self, modules)

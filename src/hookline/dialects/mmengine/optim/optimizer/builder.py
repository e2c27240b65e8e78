"""The optim of a run, out of its config."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from hookline.dialects.mmengine.errors import ConfigTypeError
from hookline.dialects.mmengine.optim.optimizer.optimizer_wrapper_dict import OptimWrapperDict
from hookline.dialects.mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS, OPTIM_WRAPPERS, OPTIMIZERS
from hookline.engine.optim import Optim
from hookline.engine.optims import Optims

if TYPE_CHECKING:
    from torch import nn

__all__ = ["OPTIMIZERS", "OPTIM_WRAPPER_CONSTRUCTORS", "build_optim_wrapper"]


def build_optim_wrapper(model: nn.Module, cfg: Any) -> Any:
    """The wrapped optimizer, or several by name.

    Args:
        model: Whose parameters are updated.
        cfg: `dict(optimizer=dict(type="SGD", lr=0.1), ...)`, with `type` for another wrapper, `constructor` and
            `paramwise_cfg`; or the same with an optimizer that is there already; or wrappers by name; or a wrapper,
            which is given back.
    """
    if isinstance(cfg, (Optim, Optims)):
        return cfg
    if not isinstance(cfg, Mapping):
        raise ConfigTypeError(f"optim_wrapper is an OptimWrapper, or a dict that describes it, not {cfg!r}")
    if isinstance(cfg.get("optimizer"), Optimizer):
        return OPTIM_WRAPPERS.build({"type": "OptimWrapper", **cfg})
    if "optimizer" not in cfg and "constructor" not in cfg and cfg and all(isinstance(v, Optim) for v in cfg.values()):
        return OptimWrapperDict(**{str(name): wrapper for name, wrapper in cfg.items()})
    given = copy.deepcopy(dict(cfg))  # a constructor of a project may take things out of it
    constructor = OPTIM_WRAPPER_CONSTRUCTORS.build(
        {
            "type": cfg.get("constructor", "DefaultOptimWrapperConstructor"),
            "optim_wrapper_cfg": {name: given[name] for name in given if name not in ("constructor", "paramwise_cfg")},
            "paramwise_cfg": given.get("paramwise_cfg"),
        }
    )
    return constructor(model)

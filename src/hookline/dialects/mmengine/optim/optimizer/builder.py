"""Build the optimizer wrapper of a run from its config."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.not_included import not_included, stands_for
from hookline.dialects.mmengine.optim.optimizer.optimizer_wrapper_dict import OptimWrapperDict
from hookline.dialects.mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS, OPTIM_WRAPPERS, OPTIMIZERS
from hookline.optim.optim import Optim
from hookline.optim.optims import Optims

if TYPE_CHECKING:
    from torch import nn

__all__ = ["OPTIMIZERS", "OPTIM_WRAPPER_CONSTRUCTORS", "build_optim_wrapper"]


def build_optim_wrapper(model: nn.Module, cfg: Any) -> Any:
    """Return the wrapped optimizer, or several by name.

    Args:
        model: The model whose parameters are updated.
        cfg: `dict(optimizer=dict(type="SGD", lr=0.1), ...)`, optionally with the `type` of another wrapper, a
            `constructor` and a `paramwise_cfg`. The optimizer can also be an existing object. A dict of wrappers by
            name becomes an OptimWrapperDict. A wrapper is returned unchanged.
    """
    if isinstance(cfg, (Optim, Optims)):
        return cfg
    if not isinstance(cfg, Mapping):
        raise ConfigTypeError(f"optim_wrapper must be an OptimWrapper or a dict that describes one, not {cfg!r}")
    if isinstance(cfg.get("optimizer"), Optimizer):
        return OPTIM_WRAPPERS.build({"type": "OptimWrapper", **cfg})
    if "optimizer" not in cfg and "constructor" not in cfg and cfg and all(isinstance(v, Optim) for v in cfg.values()):
        return OptimWrapperDict(**{str(name): wrapper for name, wrapper in cfg.items()})
    if "optimizer" not in cfg and "constructor" not in cfg and any(isinstance(v, Optim) for v in cfg.values()):
        others = [str(name) for name, value in cfg.items() if not isinstance(value, Optim)]
        raise ConfigValueError(
            f"optim_wrapper has OptimWrappers by name, but {', '.join(others)} is none; build it, too, or name a "
            "constructor that builds all of them"
        )
    given = copy.deepcopy(dict(cfg))  # a custom constructor may remove entries
    constructor = OPTIM_WRAPPER_CONSTRUCTORS.build(
        {
            "type": cfg.get("constructor", "DefaultOptimWrapperConstructor"),
            "optim_wrapper_cfg": {name: given[name] for name in given if name not in ("constructor", "paramwise_cfg")},
            "paramwise_cfg": given.get("paramwise_cfg"),
        }
    )
    return constructor(model)


#: The optimizers that a config can name without registering them.
TORCH_OPTIMIZERS = [name for name, value in vars(torch.optim).items() if isinstance(value, type)]
TRANSFORMERS_OPTIMIZERS = ["Adafactor"]  # torch has it, too
stands_for(__name__, "optim.optimizer.apex_optimizer_wrapper", "optim.optimizer.zero_optimizer")
not_included(
    globals(),
    *("ApexOptimWrapper", "ZeroRedundancyOptimizer", "register_torch_optimizers"),
    *("BITSANDBYTES_OPTIMIZERS", "DADAPTATION_OPTIMIZERS", "LION_OPTIMIZERS", "NPU_OPTIMIZERS", "SOPHIA_OPTIMIZERS"),
    *("register_bitsandbytes_optimizers", "register_dadaptation_optimizers"),
    *("register_lion_optimizers", "register_sophia_optimizers", "register_torch_npu_optimizers"),
    "register_transformers_optimizers",
)

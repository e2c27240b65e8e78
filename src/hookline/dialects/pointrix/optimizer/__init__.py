"""Optimizers and schedulers, and the functions that build them from a config."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

import torch
from torch import nn

from hookline.dialects.pointrix.optimizer.optimizer import OPTIMIZER_REGISTRY, BaseOptimizer, OptimizerList
from hookline.dialects.pointrix.optimizer.scheduler import SCHEDULER_REGISTRY, ExponLRScheduler
from hookline.dialects.pointrix.utils.config import config_to_primitive
from hookline.dialects.pointrix.utils.sections import select_accepted
from hookline.errors import ConfigError, did_you_mean
from hookline.plan.registry import construct

__all__ = [
    "OPTIMIZER_REGISTRY",
    "SCHEDULER_REGISTRY",
    "BaseOptimizer",
    "ExponLRScheduler",
    "OptimizerList",
    "parse_optimizer",
    "parse_scheduler",
]


def parse_optimizer(configs: Any, model: nn.Module, datapipeline: Any = None, **kwargs: Any) -> OptimizerList:
    """Build optimizers by name: `{main: {type: BaseOptimizer, name: Adam, args: {...}, params: {<name>: {lr: ...}}}}`.

    Each parameter or module of the model that `params` names becomes a group. Without `params`, all parameters are in
    one group. A null optimizer is left out.
    """
    offered = {"model": model, "datapipeline": datapipeline, **kwargs}
    wanted = {name: cfg for name, cfg in (config_to_primitive(configs) or {}).items() if cfg is not None}
    return OptimizerList({name: _build_optimizer(name, cfg, model, offered) for name, cfg in _items(wanted)})


def _build_optimizer(name: str, cfg: Mapping[str, Any], model: nn.Module, offered: Mapping[str, Any]) -> Any:
    who = f"optimizer '{name}'"
    known = ("type", "name", "args", "params", "extra_cfg")
    for key in cfg:
        if key not in known:
            raise ConfigError(f"{who} has no key '{key}'; {did_you_mean(key, known)}")
    algorithm = getattr(torch.optim, str(cfg.get("name")), None)
    if not (isinstance(algorithm, type) and issubclass(algorithm, torch.optim.Optimizer)):
        raise ConfigError(f"{who}: 'name' must be a torch optimizer, such as Adam, not {cfg.get('name')!r}")
    groups = [
        {"params": _find_parameters(model, each, who), "name": each, **args} for each, args in _items(cfg, "params")
    ]
    optimizer = construct(algorithm, {"params": groups or model.parameters(), **cfg.get("args", {})}, who)
    wrapper = OPTIMIZER_REGISTRY.get(cfg.get("type", "BaseOptimizer"))
    return wrapper(cfg.get("extra_cfg"), optimizer, **select_accepted(wrapper, offered))


def _items(cfg: Any, key: str | None = None) -> Iterable[tuple[str, dict[str, Any]]]:
    found = config_to_primitive(cfg if key is None else cfg.get(key)) or {}
    return [(str(name), dict(value or {})) for name, value in found.items()]


def _find_parameters(model: nn.Module, name: str, who: str) -> list[nn.Parameter]:
    try:
        found = attrgetter(name)(model)
    except AttributeError:
        names = [each for each, _ in model.named_parameters()]
        raise ConfigError(
            f"{who}: params names '{name}', which the model does not have; {did_you_mean(name, names)}"
        ) from None
    if isinstance(found, nn.Parameter):
        return [found]
    if isinstance(found, nn.Module):
        return list(found.parameters())
    raise ConfigError(f"{who}: '{name}' must be a parameter or a module of the model, not a {type(found).__name__}")


def parse_scheduler(config: Any, lr_scale: float = 1.0) -> Any:
    """Build the scheduler that a section names."""
    given = dict(config_to_primitive(config))
    if "name" not in given:
        raise ConfigError(f"the section of a scheduler needs its class as 'name'; this one has {sorted(given)}")
    return SCHEDULER_REGISTRY.get(given.pop("name"))(given, lr_scale)

"""Building torch's optimizers and learning-rate policies, and two policies of iMIX, from dicts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from hookline.errors import ConfigError, did_you_mean
from hookline.plan.registry import construct


def build_optimizer(cfg: Any, model: torch.nn.Module) -> Optimizer:
    """Build an optimizer of torch.optim for all parameters from `dict(type=..., lr=..., ...)`."""
    if cfg is None:
        raise ConfigError("imixEngine needs an optimizer: pass imixEngine(..., optimizer=...), or set cfg.optimizer")
    if isinstance(cfg, Optimizer):
        return cfg
    known = {name: kind for name, kind in vars(torch.optim).items() if _is_a(kind, Optimizer)}
    factory, parameters, name = _look_up(cfg, "type", known, "optimizer")
    parameters.pop("training_encoder_lr_multiply", None)  # iMIX drops it, too, where all parameters are one group
    optimizer: Optimizer = construct(factory, {"params": model.parameters(), **parameters}, name)
    return optimizer


def build_lr_scheduler(cfg: Any, optimizer: Optimizer) -> LRScheduler | None:
    """Build a scheduler from `dict(policy=..., ...)`. Return a scheduler or None unchanged.

    A policy is the name of a torch scheduler, MultiStepScheduler or WarmupLinearSchedule. `by_epoch` is ignored here,
    because it is for the hook that steps the scheduler.
    """
    if cfg is None or isinstance(cfg, LRScheduler):
        return cfg
    key = "type" if isinstance(cfg, Mapping) and "type" in cfg and "policy" not in cfg else "policy"
    known = {name: kind for name, kind in vars(lr_scheduler).items() if _is_a(kind, LRScheduler)}
    factory, parameters, name = _look_up(cfg, key, {**known, **POLICIES}, "learning-rate policy")
    parameters.pop("by_epoch", None)
    scheduler: LRScheduler = construct(factory, {"optimizer": optimizer, **parameters}, name)
    return scheduler


def multi_step(
    optimizer: Optimizer,
    lr_steps: Sequence[int],
    lr_ratio: float,
    use_warmup: bool = False,
    warmup_factor: float = 0.0,
    warmup_iterations: int = 0,
) -> LambdaLR:
    """Raise the factor linearly from `warmup_factor` to 1, then multiply it by `lr_ratio` at each of `lr_steps`."""

    def factor(iteration: int) -> float:
        if use_warmup and iteration <= warmup_iterations:
            share = iteration / max(warmup_iterations, 1)
            return warmup_factor * (1 - share) + share
        return float(lr_ratio ** bisect_right(lr_steps, iteration))

    return LambdaLR(optimizer, factor)


def warmup_linear(optimizer: Optimizer, num_warmup_steps: int, num_training_steps: int) -> LambdaLR:
    """Raise the factor linearly from 0 to 1, then lower it linearly to 0."""

    def factor(iteration: int) -> float:
        if iteration < num_warmup_steps:
            return iteration / max(num_warmup_steps, 1)
        return max(0.0, (num_training_steps - iteration) / max(num_training_steps - num_warmup_steps, 1))

    return LambdaLR(optimizer, factor)


POLICIES: dict[str, Callable[..., LRScheduler]] = {
    "MultiStepScheduler": multi_step,
    "WarmupLinearSchedule": warmup_linear,
}


def _is_a(kind: Any, base: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, base) and kind is not base


def _look_up(
    cfg: Any, key: str, known: Mapping[str, Callable[..., Any]], what: str
) -> tuple[Callable[..., Any], dict[str, Any], str]:
    """Return the class, the parameters and the name that a dict asks for. The dict is not changed."""
    if not isinstance(cfg, Mapping) or key not in cfg:
        raise ConfigError(f"the {what} must be an object or a dict with '{key}', not {cfg!r}")
    name = cfg[key]
    if name not in known:
        raise ConfigError(f"unknown {what} '{name}'; {did_you_mean(str(name), known)}")
    return known[name], {other: cfg[other] for other in cfg if other != key}, name

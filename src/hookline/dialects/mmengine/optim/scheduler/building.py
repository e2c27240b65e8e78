"""Schedulers out of the config of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.optim.lr_scheduler import LRScheduler

from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.registry import PARAM_SCHEDULERS
from hookline.engine.optim import Optim, Scheduled, When
from hookline.engine.optims import Optims
from hookline.errors import did_you_mean


def build_param_schedulers(
    optim_wrapper: Any,
    cfg: Any,
    epoch_length: int | None = None,
    max_epochs: int | None = None,
    max_iters: int | None = None,
) -> Any:
    """The schedulers that a config names, given to the optim that steps them.

    Args:
        optim_wrapper: An OptimWrapper, or an OptimWrapperDict.
        cfg: A scheduler, a dict with `type`, or a list of these; for several optims also a dict of that by name.
            None is no scheduler.
        epoch_length: How many batches an epoch has, for `convert_to_iter_based`.
        max_epochs: The `end` of schedulers by epoch that name none.
        max_iters: The `end` of schedulers by iteration that name none.

    Returns:
        A list, or, for several optims, a dict of lists.
    """
    ends = {True: max_epochs, False: max_iters}
    if not isinstance(optim_wrapper, Optims):
        return _build_for(optim_wrapper, cfg, epoch_length, ends)
    by_name = isinstance(cfg, Mapping) and "type" not in cfg
    for name in cfg if by_name else ():
        if name not in optim_wrapper:
            raise ConfigValueError(
                f"param_scheduler has schedulers for '{name}', and no such optimizer is there; "
                f"{did_you_mean(str(name), optim_wrapper)}"
            )
    return {
        name: _build_for(optim, cfg.get(name) if by_name else cfg, epoch_length, ends)
        for name, optim in optim_wrapper.items()
    }


def _build_for(optim: Optim, cfg: Any, epoch_length: int | None, ends: Mapping[bool, int | None]) -> list[Any]:
    given = [] if cfg is None else list(cfg) if isinstance(cfg, Sequence) and not isinstance(cfg, str) else [cfg]
    schedulers = [_build(optim, each, epoch_length, ends) for each in given]
    optim.schedulers = [Scheduled(scheduler, when_of(scheduler)) for scheduler in schedulers]
    return schedulers


def _build(optim: Optim, cfg: Any, epoch_length: int | None, ends: Mapping[bool, int | None]) -> Any:
    if isinstance(cfg, LRScheduler):
        return cfg
    if not isinstance(cfg, Mapping):
        raise ConfigTypeError(f"a param_scheduler is a scheduler or a dict with 'type', not a {type(cfg).__name__}")
    parameters = dict(cfg)
    end = ends[bool(parameters.get("by_epoch", True))]
    if end is not None:
        parameters.setdefault("end", end)
    return PARAM_SCHEDULERS.build(parameters, default_args={"optimizer": optim, "epoch_length": epoch_length})


def when_of(scheduler: Any) -> When | None:
    """When the run steps a scheduler; one of torch itself follows the training loop."""
    if getattr(scheduler, "need_val_args", False):
        return "val"
    by_epoch = getattr(scheduler, "by_epoch", None)
    return None if by_epoch is None else "epoch" if by_epoch else "iter"

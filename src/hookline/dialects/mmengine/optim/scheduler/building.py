"""Build the schedulers of a run from its config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import LRScheduler

from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.optim.scheduler.base import ORDERS
from hookline.dialects.mmengine.registry import PARAM_SCHEDULERS
from hookline.errors import did_you_mean
from hookline.optim.optims import Optims
from hookline.optim.scheduled import Scheduled, When

if TYPE_CHECKING:
    from hookline.optim.optim import Optim

__all__ = ["build_param_schedulers"]


def build_param_schedulers(
    optim_wrapper: Any,
    cfg: Any,
    epoch_length: int | None = None,
    max_epochs: int | None = None,
    max_iters: int | None = None,
) -> Any:
    """Build the schedulers that a config describes and attach them to the optim that steps them.

    Args:
        optim_wrapper: An OptimWrapper or an OptimWrapperDict.
        cfg: A scheduler, a dict with a `type`, or a list of these. With several optims, also a dict of these by optim
            name. None means no scheduler.
        epoch_length: The number of batches in an epoch, for `convert_to_iter_based`.
        max_epochs: The default `end` of schedulers that count epochs.
        max_iters: The default `end` of schedulers that count iterations.

    Returns:
        A list, or a dict of lists if there are several optims.
    """
    ends = {True: max_epochs, False: max_iters}
    if not isinstance(optim_wrapper, Optims):
        return _build_for(optim_wrapper, cfg, epoch_length, ends)
    by_name = isinstance(cfg, Mapping) and "type" not in cfg
    for name in cfg if by_name else ():
        if name not in optim_wrapper:
            raise ConfigValueError(
                f"param_scheduler has schedulers for an unknown optimizer '{name}'; "
                f"{did_you_mean(str(name), optim_wrapper)}"
            )
    return {
        name: _build_for(optim, cfg.get(name) if by_name else cfg, epoch_length, ends)
        for name, optim in optim_wrapper.items()
    }


def _build_for(optim: Optim, cfg: Any, epoch_length: int | None, ends: Mapping[bool, int | None]) -> list[Any]:
    given = [] if cfg is None else list(cfg) if isinstance(cfg, Sequence) and not isinstance(cfg, str) else [cfg]
    schedulers = [_build(optim, each, epoch_length, ends) for each in given]
    for scheduler in schedulers:
        if scheduler in ORDERS:
            ORDERS[scheduler].ignore()
    optim.schedulers = [Scheduled(scheduler, get_step_timing(scheduler)) for scheduler in schedulers]
    return schedulers


def _build(optim: Optim, cfg: Any, epoch_length: int | None, ends: Mapping[bool, int | None]) -> Any:
    if isinstance(cfg, LRScheduler):
        return cfg
    if not isinstance(cfg, Mapping):
        raise ConfigTypeError(
            f"a param_scheduler must be a scheduler or a dict with a 'type', not a {type(cfg).__name__}"
        )
    parameters = dict(cfg)
    end = ends[bool(parameters.get("by_epoch", True))]
    if end is not None:
        parameters.setdefault("end", end)
    return PARAM_SCHEDULERS.build(parameters, default_args={"optimizer": optim, "epoch_length": epoch_length})


def get_step_timing(scheduler: Any) -> When | None:
    """Return when the run steps a scheduler. torch's own schedulers follow the training loop."""
    if getattr(scheduler, "need_val_args", False):
        return "val"
    by_epoch = getattr(scheduler, "by_epoch", None)
    return None if by_epoch is None else "epoch" if by_epoch else "iter"

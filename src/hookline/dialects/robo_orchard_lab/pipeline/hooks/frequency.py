"""Frequencies of hooks, in steps of the run or in epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline.dialects.errors import SettingValueError

if TYPE_CHECKING:
    from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import PipelineHookArgs, PipelineHooksConfig


def due_after_step(args: PipelineHookArgs, every: int | None) -> bool:
    """Return whether this step succeeded and is a multiple of `every`; None and 0 mean never."""
    return args.exception is None and _is_multiple(args.global_step_id + 1, every)


def due_after_epoch(args: PipelineHookArgs, every: int | None) -> bool:
    """Return whether this epoch succeeded and is a multiple of `every`; None and 0 mean never."""
    return args.exception is None and _is_multiple(args.epoch_id + 1, every)


def _is_multiple(done: int, every: int | None) -> bool:
    return every is not None and every > 0 and done % every == 0


def check_frequencies(cfg: PipelineHooksConfig[Any], *names: str) -> None:
    """Check that at least one of these frequencies is set, and that each is at least 1."""
    given = {name: getattr(cfg, name) for name in names if getattr(cfg, name) is not None}
    if not given:
        raise SettingValueError(f"at least one of {' and '.join(names)} must be set")
    for name, value in given.items():
        if value < 1:
            raise SettingValueError(f"{name} must be a number of steps or epochs, at least 1, not {value}")

"""How often a hook does something: every so many steps of the run, or epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline.dialects.robo_orchard_core.refusals import SettingValueError

if TYPE_CHECKING:
    from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import PipelineHookArgs, PipelineHooksConfig


def due_after_step(args: PipelineHookArgs, every: int | None) -> bool:
    """Whether this step went well, and is one of every so many; None and 0 mean never."""
    return args.exception is None and _is_one_of(args.global_step_id + 1, every)


def due_after_epoch(args: PipelineHookArgs, every: int | None) -> bool:
    """Whether this epoch went well, and is one of every so many; None and 0 mean never."""
    return args.exception is None and _is_one_of(args.epoch_id + 1, every)


def _is_one_of(done: int, every: int | None) -> bool:
    return every is not None and every > 0 and done % every == 0


def check_frequencies(cfg: PipelineHooksConfig[Any], *names: str) -> None:
    """At least one of these says how often, and none of them less than every time."""
    given = {name: getattr(cfg, name) for name in names if getattr(cfg, name) is not None}
    if not given:
        raise SettingValueError(f"one of {' and '.join(names)} has to say how often")
    for name, value in given.items():
        if value < 1:
            raise SettingValueError(f"{name} is a number of steps or epochs, at least 1, not {value}")

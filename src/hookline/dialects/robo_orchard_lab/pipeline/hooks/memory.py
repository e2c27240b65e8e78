"""ClearCacheHook: returns unused memory to the device."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hookline.dialects.robo_orchard_lab.pipeline.hooks.configured import ConfiguredHooks
from hookline.dialects.robo_orchard_lab.pipeline.hooks.frequency import due_after_epoch, due_after_step
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import PipelineHookArgs, PipelineHooksConfig

__all__ = ["ClearCacheHook", "ClearCacheHookConfig"]


class ClearCacheHook(ConfiguredHooks["ClearCacheHookConfig"]):
    """Empties the memory cache of the device at an interval of steps or epochs.

    With `garbage_collection`, garbage is collected first. A CPU has no such cache.
    """

    def __init__(self, cfg: ClearCacheHookConfig) -> None:
        super().__init__(cfg)
        by_step = cfg.empty_cache_at == "step"
        after = self._on_step_end if by_step else self._on_epoch_end
        self.at("on_step" if by_step else "on_epoch", after=after)

    def _on_step_end(self, args: PipelineHookArgs) -> None:
        if due_after_step(args, self.cfg.empty_cache_freq):
            self._clear()

    def _on_epoch_end(self, args: PipelineHookArgs) -> None:
        if due_after_epoch(args, self.cfg.empty_cache_freq):
            self._clear()

    def _clear(self) -> None:
        from accelerate.utils.memory import clear_device_cache  # type: ignore[import-untyped]

        clear_device_cache(garbage_collection=self.cfg.garbage_collection)


class ClearCacheHookConfig(PipelineHooksConfig[ClearCacheHook]):
    """The config of ClearCacheHook."""

    class_type: type[ClearCacheHook] = ClearCacheHook
    empty_cache_at: Literal["step", "epoch"] = "epoch"
    empty_cache_freq: int = Field(default=1, ge=1)
    garbage_collection: bool = False

"""ConfiguredHooks: the base class of the built-in hooks, which a config describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import (
    HookContext,
    PipelineHookArgs,
    PipelineHookChanelType,
    PipelineHooks,
    PipelineHooksConfig,
)

ConfigT = TypeVar("ConfigT", bound=PipelineHooksConfig[Any])
Called = Callable[[PipelineHookArgs], None]


class ConfiguredHooks(PipelineHooks, Generic[ConfigT]):
    """Hooks with a config. A subclass registers its methods in its constructor."""

    def __init__(self, cfg: ConfigT) -> None:
        super().__init__()
        self.cfg = cfg

    def at(self, channel: PipelineHookChanelType, before: Called | None = None, after: Called | None = None) -> None:
        """Call functions before and after the work of a channel."""
        self.register_hook(channel, HookContext.from_callable(before=before, after=after))

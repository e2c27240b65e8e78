"""Organizer: the settings, the optimizer and the hooks of an engine, from its config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline.dialects.imix.engine.hook_list import custom_hooks, default_hooks
from hookline.dialects.imix.engine.settings import Settings, read_settings
from hookline.dialects.imix.solver import build_optimizer

if TYPE_CHECKING:
    from torch import nn


class Organizer:
    """The parts of an engine that its config describes.

    Args:
        cfg: The config; see `imixEngine`.
        model: The model.
        data_loader: The batches.
        optimizer: The optimizer, or a dict in the form of `cfg.optimizer`.
    """

    def __init__(self, cfg: Any, model: nn.Module, data_loader: Any, optimizer: Any = None) -> None:
        self.settings: Settings = read_settings(cfg)
        self.cfg = self.settings.cfg
        if not hasattr(optimizer, "param_groups"):
            optimizer = build_optimizer(self.settings.optimizer if optimizer is None else optimizer, model)
        self.optimizer = optimizer
        self.max_iter = self.settings.count_iters(data_loader)
        customs = custom_hooks(self.settings)
        hooks = default_hooks(self.settings, optimizer, [hook for hook, _ in customs])
        #: The hooks, each with its level from the config, or None for the level of the hook.
        self.leveled: list[tuple[Any, Any]] = [*((hook, None) for hook in hooks), *customs]

    @property
    def hooks(self) -> list[Any]:
        """Return the hooks that the engine registers: the default hooks, then `custom_hooks`."""
        return [hook for hook, _ in self.leveled]

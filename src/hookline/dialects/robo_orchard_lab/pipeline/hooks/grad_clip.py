"""GradientClippingHook: clips the gradients before the optimizer steps."""

from __future__ import annotations

from typing import Literal

from hookline.dialects.errors import SettingValueError
from hookline.dialects.robo_orchard_lab.pipeline.hooks.configured import ConfiguredHooks
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import PipelineHookArgs, PipelineHooksConfig

__all__ = ["GradientClippingHook", "GradientClippingHookConfig"]


class GradientClippingHook(ConfiguredHooks["GradientClippingHookConfig"]):
    """Clips the gradients by their total norm or by value, once per update.

    It must run before the optimizer's step, so pass its config to the trainer as `grad_clip`.
    """

    def __init__(self, cfg: GradientClippingHookConfig) -> None:
        super().__init__(cfg)
        self.at("on_step", after=self._gradient_clipping)

    def _gradient_clipping(self, args: PipelineHookArgs) -> None:
        if args.exception is not None or not args.accelerator.sync_gradients:
            return
        parameters = [parameter for group in args.optimizer.param_groups for parameter in group["params"]]
        if self.cfg.clip_mode == "value":
            args.accelerator.clip_grad_value_(parameters, self.cfg.clip_value)
        else:
            args.accelerator.clip_grad_norm_(parameters, self.cfg.max_norm, self.cfg.norm_type)


class GradientClippingHookConfig(PipelineHooksConfig[GradientClippingHook]):
    """The config of GradientClippingHook: `norm` needs `max_norm`, `value` needs `clip_value`."""

    class_type: type[GradientClippingHook] = GradientClippingHook
    clip_mode: Literal["norm", "value"]
    clip_value: float | None = None
    max_norm: float | None = None
    norm_type: float = 2.0

    def __post_init__(self) -> None:
        """Refuse a limit that is missing or negative."""
        needed = "max_norm" if self.clip_mode == "norm" else "clip_value"
        limit = getattr(self, needed)
        if limit is None or limit < 0:
            raise SettingValueError(f"clip_mode '{self.clip_mode}' needs {needed} of at least 0, not {limit!r}")

"""GradClipHook: clips the gradients before an optimizer step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hookline.common.checks import check_choice, check_number
from hookline.errors import ConfigError
from hookline.optim.clipping import Clip, check_norm_type
from hookline.runner.hook import Hook

if TYPE_CHECKING:
    from hookline.runner.runner import Runner

# The parameter that each mode needs.
LIMITS = {"norm": "max_norm", "value": "clip_value"}


class GradClipHook(Hook):
    """Clips the gradients before every optimizer step, by total norm or by value.

    It does exactly what `Optim(clip_norm=...)` and `Optim(clip_value=...)` do, for all optims. Using both is refused.
    The gradients are clipped once per accumulation window, when they are complete and unscaled.

    The total norm before clipping is recorded as `train/grad_norm` (with several optims, `train/<optim>/grad_norm`),
    and is available as `optim.grad_norm`.

    It runs last at `before_optimizer_step`, so other hooks see the unclipped gradients there and may change them.

    Cost: one multi-tensor norm and one multi-tensor multiplication per optimizer step, without waiting for the device.

    Example:
        from hookline.hooks import GradClipHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[GradClipHook(max_norm=1.0)]).train()

    YAML:
        custom_hooks:
          - {type: GradClipHook, max_norm: 1.0}

    Args:
        mode: `norm` scales all gradients so that their total norm is at most `max_norm`. `value` limits each gradient
            value to the range from `-clip_value` to `clip_value`.
        max_norm: The largest allowed total norm. Required in mode `norm`, and only allowed there.
        clip_value: The largest allowed absolute value. Required in mode `value`, and only allowed there.
        norm_type: The norm to limit and record. 2 is the usual one, and `.inf` is the largest absolute value.
    """

    priority = "LOWEST"
    runs_after = ("GradNormHook",)

    def __init__(
        self,
        mode: Literal["norm", "value"] = "norm",
        max_norm: float | None = None,
        clip_value: float | None = None,
        norm_type: float = 2.0,
    ) -> None:
        check_choice("GradClipHook: mode", mode, LIMITS)
        limits = {"max_norm": max_norm, "clip_value": clip_value}
        needed = LIMITS[mode]
        for name, limit in limits.items():
            if name != needed and limit is not None:
                other = next(mode for mode, needed in LIMITS.items() if needed == name)
                raise ConfigError(f"GradClipHook: {name} is for mode '{other}', but the mode is '{mode}'")
        if limits[needed] is None:
            raise ConfigError(f"GradClipHook: mode '{mode}' needs {needed}")
        check_number(f"GradClipHook: {needed}", limits[needed], above=0)
        check_norm_type("GradClipHook: norm_type", norm_type)
        self.mode = mode
        #: The clipping that is applied.
        self.clip = Clip(max_norm, clip_value, norm_type)

    def before_train(self, runner: Runner) -> None:
        """Refuse a second clipping: it would see, and record, gradients that are already clipped."""
        if sum(isinstance(entry.hook, GradClipHook) for entry in runner.plan) > 1:
            raise ConfigError("GradClipHook: there are two GradClipHooks; one applies to all optims, so remove one")
        for name, optim in runner.optims.items():
            if optim.clip is not None:
                limit = f"clip_norm={optim.clip.norm}" if optim.clip.norm else f"clip_value={optim.clip.value}"
                which = f"the optim '{name}'" if name else "the optim"
                raise ConfigError(
                    f"GradClipHook and {which} (Optim({limit})) both clip the gradients; remove the hook or the {limit}"
                )

    def before_optimizer_step(self, runner: Runner) -> None:
        """Clip the gradients of the optim that steps, and record their norm before clipping."""
        if runner.skipped:  # there will be no step
            return
        for prefix, optim in runner.optims.prefixed.items():
            if optim.updating:
                runner.hub.update_scalar(f"{prefix}grad_norm", optim.clip_gradients(self.clip))

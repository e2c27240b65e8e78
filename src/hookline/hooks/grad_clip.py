"""GradClipHook: bounds the gradients before an optimizer step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hookline.common.checks import check_choice, check_number
from hookline.engine.clipping import Clip, check_norm_type
from hookline.errors import ConfigError
from hookline.plan.hook import Hook

if TYPE_CHECKING:
    from hookline.engine.runner import Runner

# The parameter that each mode needs.
LIMITS = {"norm": "max_norm", "value": "clip_value"}


class GradClipHook(Hook):
    """Clips the gradients before every optimizer step, by their total norm or each by its value.

    It does just what `Optim(clip_norm=...)` and `Optim(clip_value=...)` do, to the bit; as a hook it can be named in
    `custom_hooks`, and one setting holds for all optims. Having both is refused. Clipped are the parameters of the
    optim that makes the step, once an accumulation window, when the gradients are complete and unscaled.

    The total norm before clipping is recorded as `train/grad_norm` (with several optims `train/<optim>/grad_norm`), and
    stands in `optim.grad_norm`.

    It runs last at `before_optimizer_step`: other hooks see the whole gradients there, also GradNormHook, and may
    change them. At `after_optimizer_step` they are clipped.

    Cost: one multi-tensor norm and one multi-tensor multiplication an optimizer step, without a wait for the device.

    Example:
        from hookline.hooks import GradClipHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[GradClipHook(max_norm=1.0)]).train()

    YAML:
        custom_hooks:
          - {type: GradClipHook, max_norm: 1.0}

    Args:
        mode: `norm` scales all gradients so that their total norm is at most `max_norm`; `value` cuts each off at
            `clip_value` and its negative.
        max_norm: The greatest total norm; needed in mode `norm`, and only there.
        clip_value: The greatest absolute value; needed in mode `value`, and only there.
        norm_type: Which norm is meant and recorded: 2 is the usual one, `.inf` the greatest absolute value.
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
                raise ConfigError(f"GradClipHook: {name} is for mode '{other}', and the mode is '{mode}'")
        if limits[needed] is None:
            raise ConfigError(f"GradClipHook: mode '{mode}' needs {needed}")
        check_number(f"GradClipHook: {needed}", limits[needed], above=0)
        check_norm_type("GradClipHook: norm_type", norm_type)
        self.mode = mode
        #: What is done to the gradients.
        self.clip = Clip(max_norm, clip_value, norm_type)

    def before_train(self, runner: Runner) -> None:
        """Refuse anybody else that clips: the second to do so would see, and record, what the first has left."""
        if sum(isinstance(entry.hook, GradClipHook) for entry in runner.plan) > 1:
            raise ConfigError("GradClipHook: there are two of them; one holds for all optims, so leave the other out")
        for name, optim in runner.optims.items():
            if optim.clip is not None:
                limit = f"clip_norm={optim.clip.norm}" if optim.clip.norm else f"clip_value={optim.clip.value}"
                which = f"the optim '{name}'" if name else "the optim"
                raise ConfigError(
                    f"GradClipHook and {which} (Optim({limit})) both clip the gradients; remove the hook or the {limit}"
                )

    def before_optimizer_step(self, runner: Runner) -> None:
        """Clip the gradients of the optim that makes this step, and record their norm as it was."""
        if runner.skipped:  # the step is not made
            return
        for prefix, optim in runner.optims.prefixed.items():
            if optim.updating:
                runner.hub.update_scalar(f"{prefix}grad_norm", optim.clip_gradients(self.clip))

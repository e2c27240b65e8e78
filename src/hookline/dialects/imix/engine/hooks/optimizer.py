"""OptimizerHook and Fp16OptimizerHook: updating the weights after the loss is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from hookline.common.checks import check_choice
from hookline.dialects.imix.engine.hooks.base_hook import HookBase, PriorityStatus
from hookline.errors import ConfigError, did_you_mean
from hookline.optim.clipping import Clip

if TYPE_CHECKING:
    from hookline.dialects.imix.engine.parts import Parts

SCALER = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")


class OptimizerHook(HookBase):
    """Updates the weights after an iteration with the native `Optim.update`: backward pass, clipping, optimizer step.

    The engine's `gradient_accumulation_steps` is the number of iterations per update. Gradients are clipped once per
    update, when they are complete. They are kept until the next update, so hooks that run after this one can read them.

    Args:
        grad_clip: None, or `dict(max_norm=..., norm_type=2)`, or `dict(clip_value=...)`. The norm before clipping is
            recorded as `grad_norm`.
    """

    _level = PriorityStatus.HIGH

    def __init__(self, grad_clip: Mapping[str, Any] | float | None = None) -> None:
        self.grad_clip = grad_clip
        self._clip = parse_grad_clip(grad_clip, type(self).__name__)

    def _prepare(self, parts: Parts) -> None:
        parts.claim_updates(type(self).__name__, self._clip)

    def after_train_iter(self) -> None:
        """Perform the update, or one part of it when gradients are accumulated."""
        trainer: Any = self._trainer()  # type: ignore[misc]  # self.trainer without the cost of a property call
        runner = trainer.runner
        optim = runner.optim
        loss = optim.perform(runner.ends_window)
        if loss is not None:
            trainer.output["loss"] = loss  # detached, so that keeping it does not keep the graph
        if optim.norms:
            for norm in optim.norms:
                trainer.log_buffer.put_scalar("grad_norm", norm)
            optim.norms.clear()


class Fp16OptimizerHook(OptimizerHook):
    """An OptimizerHook with mixed precision, even on a CPU. Checkpoints contain the state of the gradient scaler.

    Args:
        grad_clip: As for OptimizerHook.
        grad_scaler_config: Parameters for torch's GradScaler: `init_scale`, `growth_factor`, `backoff_factor`,
            `growth_interval`.
        dtype: `fp16`, or `bf16`, which needs no scaler.
    """

    def __init__(
        self,
        grad_clip: Mapping[str, Any] | float | None = None,
        grad_scaler_config: Mapping[str, Any] | None = None,
        dtype: Literal["fp16", "bf16"] = "fp16",
    ) -> None:
        super().__init__(grad_clip)
        check_choice("Fp16OptimizerHook: dtype", dtype, ("fp16", "bf16"))
        self.grad_scaler_config = dict(grad_scaler_config or {})
        self.dtype = dtype
        for name in self.grad_scaler_config:
            if name not in SCALER:
                raise ConfigError(
                    f"Fp16OptimizerHook: grad_scaler_config has no '{name}'; {did_you_mean(name, SCALER)}"
                )
        if dtype == "bf16" and self.grad_scaler_config:
            raise ConfigError("Fp16OptimizerHook: bf16 uses no gradient scaler; remove grad_scaler_config")

    def _prepare(self, parts: Parts) -> None:
        super()._prepare(parts)
        parts.precision = self.dtype
        if self.dtype == "fp16":
            import torch

            parts.scaler = torch.amp.GradScaler(parts.device.type, **self.grad_scaler_config)


def parse_grad_clip(given: Mapping[str, Any] | float | None, who: str) -> Clip | None:
    """Check `grad_clip` and return it as a Clip."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        given = {"max_norm": given}
    known = ("max_norm", "norm_type", "clip_value")
    for name in given:
        if name not in known:
            raise ConfigError(f"{who}: grad_clip has no '{name}'; {did_you_mean(name, known)}")
    try:
        return Clip.of(given.get("max_norm"), given.get("clip_value"), float(given.get("norm_type", 2.0)))
    except ConfigError as error:
        raise ConfigError(f"{who}: grad_clip: {error}") from None

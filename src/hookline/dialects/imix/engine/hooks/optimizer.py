"""OptimizerHook and Fp16OptimizerHook: the update, made where the loss has been computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from hookline.common.checks import check_choice
from hookline.dialects.imix.engine.hooks.base_hook import HookBase, PriorityStatus
from hookline.engine.clipping import Clip
from hookline.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from hookline.dialects.imix.engine.parts import Parts

SCALER = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")


class OptimizerHook(HookBase):
    """Makes the update of an iteration: backward pass, clipping, optimizer step, by the native `Optim.update`.

    With `gradient_accumulation_steps` of the engine, so many iterations make one update, and gradients are clipped
    once, when they are complete. They stay until the next update, so hooks that run after this one can look at them.

    Args:
        grad_clip: None, or `dict(max_norm=..., norm_type=2)`, or `dict(clip_value=...)`. The norm before clipping is
            recorded as `grad_norm`.
    """

    _level = PriorityStatus.HIGH

    def __init__(self, grad_clip: Mapping[str, Any] | float | None = None) -> None:
        self.grad_clip = grad_clip
        self._clip = clip_of(grad_clip, type(self).__name__)

    def _prepare(self, parts: Parts) -> None:
        parts.updates(type(self).__name__, self._clip)

    def after_train_iter(self) -> None:
        """The update, or a part of it."""
        trainer: Any = self._trainer()  # type: ignore[misc]  # as the property, which costs a call more
        runner = trainer.runner
        optim = runner.optim
        loss = optim.make(runner.ends_window)
        if loss is not None:
            trainer.output["loss"] = loss  # whoever keeps it does not keep the graph of its step
        if optim.norms:
            for norm in optim.norms:
                trainer.log_buffer.put_scalar("grad_norm", norm)
            optim.norms.clear()


class Fp16OptimizerHook(OptimizerHook):
    """The same in mixed precision, also on a CPU; the state of the gradient scaler is in every checkpoint.

    Args:
        grad_clip: As for OptimizerHook.
        grad_scaler_config: Parameters of torch's GradScaler: `init_scale`, `growth_factor`, `backoff_factor`,
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
            raise ConfigError("Fp16OptimizerHook: bf16 has no gradient scaler, so it takes no grad_scaler_config")

    def _prepare(self, parts: Parts) -> None:
        super()._prepare(parts)
        parts.precision = self.dtype
        if self.dtype == "fp16":
            import torch

            parts.scaler = torch.amp.GradScaler(parts.device.type, **self.grad_scaler_config)


def clip_of(given: Mapping[str, Any] | float | None, who: str) -> Clip | None:
    """What `grad_clip` says, checked."""
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

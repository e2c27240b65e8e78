"""SimpleTrainer: the trainer of earlier versions, with separate parameters instead of configs."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from hookline.common.modes import in_mode
from hookline.dialects.errors import SettingValueError
from hookline.dialects.robo_orchard_core.utils.function_info import logger_of
from hookline.dialects.robo_orchard_lab.pipeline import checks
from hookline.dialects.robo_orchard_lab.pipeline.hook_based_trainer import (
    GradientClippingHookConfig,
    HookBasedTrainer,
    PipelineHookOrConfigType,
    ResumeCheckpointConfig,
    ValidationHookConfig,
)

if TYPE_CHECKING:
    import torch

__all__ = ["SimpleTrainer"]

log = logger_of(__name__)


class SimpleTrainer(HookBasedTrainer):
    """A HookBasedTrainer that also validates.

    For each batch of `val_dataloader`, it calls `metric.update(batch, outputs)`. Then it calls `compute` and `reset`.
    """

    def __init__(
        self,
        model: Any,
        accelerator: Any,
        batch_processor: Any,
        dataloader: Iterable[Any],
        optimizer: torch.optim.Optimizer,
        lr_scheduler: Any = None,
        lr_scheduler_step_at: Literal["step"] = "step",
        max_step: int | None = None,
        max_epoch: int | None = None,
        val_dataloader: Iterable[Any] | None = None,
        metric: Any = None,
        step_eval_freq: int | None = None,
        epoch_eval_freq: int | None = None,
        resume_from: str | None = None,
        resume_share_dir: str | None = None,
        grad_clip_mode: Literal["value", "norm"] | None = None,
        grad_clip_value: float | None = None,
        grad_max_norm: float | None = None,
        grad_norm_type: float = 2.0,
        hooks: PipelineHookOrConfigType | Iterable[PipelineHookOrConfigType] | None = None,
    ) -> None:
        if lr_scheduler_step_at != "step":
            raise SettingValueError(f"lr_scheduler_step_at must be 'step', not {lr_scheduler_step_at!r}")
        if val_dataloader is not None and metric is None:
            raise SettingValueError("a val_dataloader needs a metric")
        _refuse_without(
            "val_dataloader", val_dataloader, step_eval_freq=step_eval_freq, epoch_eval_freq=epoch_eval_freq
        )
        _refuse_without("grad_clip_mode", grad_clip_mode, grad_clip_value=grad_clip_value, grad_max_norm=grad_max_norm)
        checks.check_parts(accelerator, model, dataloader, optimizer, lr_scheduler)
        self.metric = metric
        self.val_dataloader = None if val_dataloader is None else accelerator.prepare(val_dataloader)
        super().__init__(
            accelerator,
            model,
            dataloader,
            batch_processor,
            optimizer,
            lr_scheduler,
            hooks=hooks,
            max_step=max_step,
            max_epoch=max_epoch,
            grad_clip=grad_clip_mode
            and GradientClippingHookConfig(
                clip_mode=grad_clip_mode, clip_value=grad_clip_value, max_norm=grad_max_norm, norm_type=grad_norm_type
            ),
            validation=None if val_dataloader is None else self._validation(step_eval_freq, epoch_eval_freq),
            resume_from=None
            if resume_from is None
            else ResumeCheckpointConfig(resume_from=resume_from, cache_dir=resume_share_dir),
        )

    def _validation(self, step_eval_freq: int | None, epoch_eval_freq: int | None) -> ValidationHookConfig:
        trainer = weakref.proxy(self)
        return ValidationHookConfig(
            eval_callback=lambda: trainer.eval(), step_eval_freq=step_eval_freq, epoch_eval_freq=epoch_eval_freq
        )

    def eval(self) -> Any:
        """Evaluate the model on the validation data, and return the result of the metric."""
        if self.val_dataloader is None:
            raise SettingValueError("eval needs a val_dataloader; pass one to the trainer")
        with in_mode(self.model, training=False):
            for batch in self.val_dataloader:
                self.metric.update(batch, self.model(batch))
        takes_accelerator = "accelerator" in inspect.signature(self.metric.compute).parameters
        found = self.metric.compute(**{"accelerator": self.accelerator} if takes_accelerator else {})
        self.metric.reset()
        if self.accelerator.is_main_process:
            log.info("evaluation: %s", found)
        return found


def _refuse_without(needed: str, value: Any, **settings: Any) -> None:
    """Refuse settings that have no effect, because the setting that they need is missing."""
    idle = [f"{name}={setting!r}" for name, setting in settings.items() if setting is not None]
    if value is None and idle:
        raise SettingValueError(f"{' and '.join(idle)} would do nothing without a {needed}; set it, too")

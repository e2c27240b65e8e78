"""OptimizerHook: steps the optimizer and the scheduler at the end of a step of the pipeline."""

from __future__ import annotations

from typing import Any

from hookline.dialects.robo_orchard_lab.pipeline.direct import inner_optimizer
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import (
    HookContext,
    PipelineHookArgs,
    PipelineHooks,
    PipelineHooksConfig,
)
from hookline.optim.optim import zero_gradients

__all__ = ["OptimizerHook", "OptimizerHookConfig"]


class OptimizerHook(PipelineHooks):
    """Steps the optimizer and the scheduler, and clears the gradients. After a failed step it does nothing.

    The trainer has its own OptimizerHook, which runs before all hooks of the user. While gradients are accumulated,
    accelerate skips the steps that are not due.
    """

    def __init__(self, cfg: OptimizerHookConfig | None = None) -> None:
        super().__init__()
        self._outer: Any = None
        self._inner: Any = None
        self.register_hook("on_step", HookContext.from_callable(after=self._optimizer_step))

    def _optimizer_step(self, args: PipelineHookArgs) -> None:
        if args.exception is not None:
            return
        trainer = args._trainer
        if trainer is not None and (trainer.on_update.entries or args._measured) and args.accelerator.sync_gradients:
            with trainer.on_update.around(args):
                self._update(args)
        else:
            self._update(args)

    def _update(self, args: PipelineHookArgs) -> None:
        outer = inner = args.optimizer
        if args._direct:
            if outer is not self._outer:
                self._outer, self._inner = outer, inner_optimizer(outer)
            inner = self._inner
        inner.step()
        if args.lr_scheduler is not None:
            args.lr_scheduler.step()
        if inner is not outer:
            zero_gradients(inner)
        else:
            outer.zero_grad()


class OptimizerHookConfig(PipelineHooksConfig[OptimizerHook]):
    """The config of OptimizerHook."""

    class_type: type[OptimizerHook] = OptimizerHook

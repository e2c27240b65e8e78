"""BatchProcessorMixin: what the trainer asks of a batch processor."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import PipelineHookArgs, PipelineHooks

__all__ = ["BatchProcessorMixin"]


class BatchProcessorMixin(metaclass=ABCMeta):
    """Does everything with a batch up to the gradients; the step of the optimizer is a hook's."""

    @abstractmethod
    def forward(self, model: Callable[..., Any], batch: Any) -> tuple[Any, Any]:
        """The outputs of the model, and the loss (or None, where no gradients are wanted)."""

    @abstractmethod
    def __call__(
        self, pipeline_hooks: PipelineHooks, on_batch_hook_args: PipelineHookArgs, model: Callable[..., Any]
    ) -> None:
        """Process `on_batch_hook_args.batch`; outputs and loss are put beside it."""

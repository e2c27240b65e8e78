"""BatchProcessorMixin: the interface of a batch processor."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import PipelineHookArgs, PipelineHooks

__all__ = ["BatchProcessorMixin"]


class BatchProcessorMixin(metaclass=ABCMeta):
    """Processes a batch up to the gradients. A hook makes the step of the optimizer."""

    @abstractmethod
    def forward(self, model: Callable[..., Any], batch: Any) -> tuple[Any, Any]:
        """Return the outputs of the model and the loss. The loss may be None if no gradients are needed."""

    @abstractmethod
    def __call__(
        self, pipeline_hooks: PipelineHooks, on_batch_hook_args: PipelineHookArgs, model: Callable[..., Any]
    ) -> None:
        """Process `on_batch_hook_args.batch`, and store outputs and loss in `on_batch_hook_args`."""

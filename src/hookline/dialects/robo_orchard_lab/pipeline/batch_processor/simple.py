"""SimpleBatchProcessor: the forward and backward pass of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hookline.dialects.errors import HookTypeError
from hookline.dialects.robo_orchard_core.utils.function_info import FunctionInfo, refuse_wrong_call
from hookline.dialects.robo_orchard_lab.pipeline.batch_processor.mixin import BatchProcessorMixin
from hookline.dialects.robo_orchard_lab.utils import as_sequence
from hookline.errors import HooklineError, nearest
from hookline.optim.refusals import explain_backward

if TYPE_CHECKING:
    from accelerate import Accelerator  # type: ignore[import-untyped]

    from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import PipelineHookArgs, PipelineHooks

__all__ = ["LossNotProvidedError", "SimpleBatchProcessor"]


class LossNotProvidedError(HooklineError):
    """Raised when gradients are needed and `forward` returned no loss."""


class SimpleBatchProcessor(BatchProcessorMixin):
    """Calls `forward`, and, if gradients are needed, the backward pass of the loss that it returns.

    Args:
        need_backward: Compute gradients.
        transforms: Called with the batch, one after the other, before the forward pass.
    """

    #: Defaults for a subclass whose constructor does not call this one.
    need_backward = True
    transforms: Sequence[Callable[[Any], Any]] = ()
    #: The Accelerator of the training; None until the processor is prepared or called.
    accelerator: Accelerator | None = None
    _prepared = False

    def __init__(
        self,
        need_backward: bool = True,
        transforms: Callable[[Any], Any] | Sequence[Callable[[Any], Any]] | None = None,
    ) -> None:
        self.need_backward = need_backward
        self.transforms = as_sequence(transforms)
        refuse_misspelled_forward(self)

    @staticmethod
    def from_callable(
        forward: Callable[[Any, Any], tuple[Any, Any]],
        need_backward: bool = True,
        transforms: Callable[[Any], Any] | Sequence[Callable[[Any], Any]] | None = None,
    ) -> SimpleBatchProcessor:
        """Create a processor from a function that takes the model and a batch, and returns outputs and loss."""
        if not callable(forward):
            raise HookTypeError(f"from_callable needs a function that takes the model and a batch, not {forward!r}")
        refuse_wrong_forward(forward)
        return BatchProcessorFromCallable(forward, need_backward, transforms)

    def forward(self, model: Callable[..., Any], batch: Any) -> tuple[Any, Any]:
        """Return the outputs of the model and the loss; defined by a subclass."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(model, batch)")

    def prepare(self, accelerator: Accelerator) -> None:
        """Move the modules of this processor, such as a criterion, to the device; prepare those with parameters."""
        self.accelerator = accelerator
        if self._prepared:
            return
        self._prepared = True
        for name, value in list(vars(self).items()):
            if isinstance(value, torch.nn.Module):
                learns = any(True for _ in value.parameters())
                setattr(self, name, accelerator.prepare(value) if learns else value.to(accelerator.device))

    def __call__(
        self, pipeline_hooks: PipelineHooks, on_batch_hook_args: PipelineHookArgs, model: Callable[..., Any]
    ) -> None:
        """Run the forward and backward pass of one batch, with the hooks around them."""
        args, hooks = on_batch_hook_args, pipeline_hooks.hooks
        if not self._prepared or self.accelerator is None:
            self.prepare(args.accelerator)
        batch = args.batch
        for transform in self.transforms:
            batch = transform(batch)
        surround = hooks["on_model_forward"]
        if surround.entries or args._measured:
            inner = args.copy_with_updates(batch=batch)
            with surround.around(inner):
                inner.model_outputs, inner.reduce_loss = outputs, loss = self._checked(self.forward(model, batch))
        else:  # checking for hooks is cheaper than calling an empty channel
            found = self.forward(model, batch)
            outputs, loss = found if found.__class__ is tuple and len(found) == 2 else self._checked(found)
        if self.need_backward:
            if loss is None:
                raise LossNotProvidedError(
                    f"{FunctionInfo(self.forward)} returned no loss; return (outputs, loss), or create the processor "
                    "with need_backward=False"
                )
            surround = hooks["on_model_backward"]
            if surround.entries or args._measured:
                with surround.around(args.copy_with_updates(batch=batch, model_outputs=outputs, reduce_loss=loss)):
                    backward(args, loss)
            else:
                backward(args, loss)
        args.model_outputs = outputs
        args.reduce_loss = loss.detach() if isinstance(loss, Tensor) else loss

    def _checked(self, result: Any) -> tuple[Any, Any]:
        """Return what `forward` has returned. Refuse anything but the outputs and the loss."""
        if not isinstance(result, tuple) or len(result) != 2:
            raise HookTypeError(
                f"{FunctionInfo(self.forward)} must return two values, the outputs and the loss (or None), "
                f"not a {type(result).__name__}"
            )
        return result


def backward(args: PipelineHookArgs, loss: Any) -> None:
    """Run the backward pass of a loss. If it fails for a known reason, the error explains it."""
    try:
        if args._direct:
            loss.backward()
        else:
            args.accelerator.backward(loss)
    except (AttributeError, RuntimeError) as error:
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            shown = f"one of shape {tuple(loss.shape)}" if hasattr(loss, "shape") else f"a {type(loss).__name__}"
            raise HookTypeError(f"forward must return the loss as a tensor with one element, not {shown}") from error
        if isinstance(error, RuntimeError):
            explain_backward(error, loss)
        raise


def refuse_wrong_forward(forward: Any) -> None:
    """Refuse a forward that cannot be called with the model and a batch, or that is a generator or coroutine."""
    refuse_wrong_call(forward, "the model and a batch", 2)


def refuse_misspelled_forward(processor: SimpleBatchProcessor) -> None:
    """Refuse a processor with a method whose name is a near miss of `forward`."""
    cls = type(processor)
    if cls.forward is SimpleBatchProcessor.forward and "forward" not in vars(processor):
        own = [name for name in dir(cls) if not hasattr(SimpleBatchProcessor, name) and callable(getattr(cls, name))]
        miss = nearest("forward", own, 0.85)
        if miss is not None:
            raise HookTypeError(
                f"{cls.__name__} has no forward(model, batch), but it has {FunctionInfo(getattr(cls, miss))}; if that "
                "is its forward, rename it to forward"
            )


class BatchProcessorFromCallable(SimpleBatchProcessor):
    """A processor whose forward is a function."""

    def __init__(self, forward: Callable[[Any, Any], tuple[Any, Any]], need_backward: bool, transforms: Any) -> None:
        super().__init__(need_backward, transforms)
        vars(self)["forward"] = forward  # the function itself, which saves a method call per step

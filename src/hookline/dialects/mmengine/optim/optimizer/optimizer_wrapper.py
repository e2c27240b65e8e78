"""OptimWrapper, MMEngine's interface for parameter updates on top of hookline's Optim."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from hookline.common.forwarding import forwarded
from hookline.dialects.mmengine.errors import ConfigTypeError, ConfigValueError
from hookline.dialects.mmengine.optim.optimizer.base import BaseOptimWrapper
from hookline.errors import did_you_mean
from hookline.optim.clipping import Clip
from hookline.plan.scopes import NOTHING

if TYPE_CHECKING:
    from hookline.strategies import Strategy

log = logging.getLogger("hookline")

#: The parameters of torch's two clipping functions, by type.
CLIPS = {
    "norm": ("max_norm", "norm_type", "error_if_nonfinite", "foreach"),
    "value": ("clip_value", "foreach"),
}


class OptimWrapper(BaseOptimWrapper):
    """Wraps an optimizer and controls its updates.

    `update_params(loss)` is `Optim.update` with all its points. `backward`, `step` and `zero_grad` are its parts, for
    models that call them separately.

    Args:
        optimizer: Any torch optimizer.
        accumulative_counts: The number of losses per update. A window never extends past its epoch, so the checkpoint
            of an epoch never contains a partial window.
        clip_grad: `dict(max_norm=...)`, or `dict(type="value", clip_value=...)`.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        accumulative_counts: int = 1,
        clip_grad: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(optimizer, accumulate=accumulative_counts)
        self.clip = None if clip_grad is None else clip_of(clip_grad)
        self.clip_grad_kwargs = None if clip_grad is None else {k: v for k, v in clip_grad.items() if k != "type"}
        self._inner_count = 0
        self._max_counts = -1
        self._left = self._counted_left

    def attach(self, *args: Any, **kwargs: Any) -> None:
        """Join a run. If it does not know how many losses are left, use the counts of `initialize_count_status`."""
        super().attach(*args, **kwargs)
        self._left = self._with_fallback(self._left)

    def _with_fallback(self, run_left: Callable[[], int | None]) -> Callable[[], int | None]:
        def left() -> int | None:
            known = run_left()
            return known if known is not None else self._counted_left()

        return left

    def _counted_left(self) -> int | None:
        return self._max_counts - self._inner_count if self._max_counts > self._inner_count else None

    # -- the update

    def update_params(
        self,
        loss: Tensor,
        step_kwargs: Mapping[str, Any] | None = None,
        zero_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Run the backward pass and, at the end of the window, step the optimizer."""
        if step_kwargs or zero_kwargs:
            self.backward(self.scale_loss(loss))
            if self.should_update():
                self.step(**(step_kwargs or {}))
                self.zero_grad(**(zero_kwargs or {}))
            return
        self.update(loss)
        self._inner_count += 1

    def backward(self, loss: Tensor, **kwargs: Any) -> None:
        """Run the backward pass of a loss without scaling it. Use `scale_loss` to divide it by the window size."""
        if self.micro == 0:
            self._window = self._next_window()
        self._backward({"loss": loss}, 1, **kwargs)
        self._inner_count += 1

    def step(self, **kwargs: Any) -> None:
        """Clip the gradients and step the optimizer. The gradients are kept until `zero_grad`."""
        self._make_step(1.0, **kwargs)
        self.micro = 0

    def zero_grad(self, **kwargs: Any) -> None:
        """Clear the gradients."""
        self.optimizer.zero_grad(**kwargs)

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Return the loss divided by the size of its window."""
        size = self._window if self.micro else self._next_window()
        return loss / size

    def should_update(self) -> bool:
        """Return whether the losses so far complete the window."""
        return self.micro == 0 or self.micro >= self._window

    def should_sync(self) -> bool:
        """Return whether the next loss completes the window, so that processes must synchronize gradients."""
        if self.accumulate == 1:
            return True
        return self.micro + 1 >= (self._window if self.micro else self._next_window())

    def optim_context(self, model: nn.Module) -> AbstractContextManager[Any]:
        """Return the context for a forward pass. It disables gradient synchronization until the window is complete."""
        if self.accumulate > 1 and hasattr(model, "no_sync") and not self.should_sync():
            within: AbstractContextManager[Any] = model.no_sync()  # type: ignore[operator]  # hasattr was checked
            return within
        return NOTHING

    def initialize_count_status(self, model: nn.Module, init_counts: int, max_counts: int) -> None:
        """Set the number of losses so far and in total, because the last window may be shorter."""
        self._inner_count, self._max_counts = init_counts, max_counts
        if self.accumulate > 1 and any(isinstance(module, _BatchNorm) for module in model.modules()):
            log.warning(
                "the model has batch norm layers, which see the %d parts of a batch one by one: accumulative_counts=%d "
                "is not exactly equivalent to a larger batch",
                self.accumulate,
                self.accumulate,
            )

    inner_count: int = forwarded("_inner_count", "Return the number of losses so far.")
    _accumulative_counts: int = forwarded("accumulate", "")

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"Type: {name}\n_accumulative_counts: {self.accumulate}\noptimizer: \n{self.optimizer!r}\n"


@dataclass(frozen=True)
class _ClipWith(Clip):
    """Clipping with additional options of torch."""

    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, parameters: Any, strategy: Strategy) -> Tensor:
        parameters = list(parameters)
        if self.norm is not None:
            return torch.nn.utils.clip_grad_norm_(parameters, self.norm, self.norm_type, **self.options)
        total = strategy.gradients.norm_of(parameters, self.norm_type)
        torch.nn.utils.clip_grad_value_(parameters, self.value or 0.0, **self.options)
        return total


def clip_of(given: Mapping[str, Any]) -> Clip:
    """Return the clipping that `clip_grad` describes."""
    if not isinstance(given, Mapping):
        raise ConfigTypeError(f"clip_grad must be a dict such as dict(max_norm=1.0), not a {type(given).__name__}")
    kind = given.get("type", "norm")
    if kind not in CLIPS:
        raise ConfigValueError(f"clip_grad: type must be 'norm' or 'value', not {kind!r}")
    known, needed = CLIPS[kind], CLIPS[kind][0]
    for name in given:
        if name not in known and name != "type":
            raise ConfigValueError(f"clip_grad of type '{kind}' has no option '{name}'; {did_you_mean(name, known)}")
    if needed not in given:
        raise ConfigValueError(f"clip_grad of type '{kind}' needs '{needed}'; it only has {sorted(given)}")
    limit = {"max_norm": "norm", "clip_value": "value"}[needed]
    clip = Clip.of(**{"norm": None, "value": None, limit: float(given[needed])}, norm_type=given.get("norm_type", 2.0))
    assert clip is not None, "a limit was given"
    options = {name: given[name] for name in ("error_if_nonfinite", "foreach") if name in given}
    return _ClipWith(clip.norm, clip.value, clip.norm_type, options) if options else clip

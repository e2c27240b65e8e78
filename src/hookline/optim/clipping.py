"""Gradient clipping, for `Optim(clip_norm=...)` and for GradClipHook."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookline.common.checks import check_number
from hookline.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from hookline.strategies import Strategy

#: The largest float32. Gradients are compared with a limit in their own precision.
LARGEST = (2 - 2**-23) * 2.0**127


@dataclass(frozen=True)
class Clip:
    """Either the maximum total norm of the gradients, or the maximum absolute value of each."""

    norm: float | None = None
    value: float | None = None
    norm_type: float = 2.0

    @classmethod
    def of(cls, norm: float | None, value: float | None, norm_type: float = 2.0) -> Clip | None:
        """Check the options of an Optim, and return them as a Clip; None if there is nothing to clip."""
        if norm is not None and value is not None:
            raise ConfigError("use clip_norm or clip_value, not both")
        for name, limit in (("norm", norm), ("value", value)):
            if limit is not None:
                check_number(f"clip_{name}", limit, above=0)
                if limit > LARGEST:
                    raise ConfigError(f"clip_{name} must be at most {LARGEST:.3g}, the largest float32, not {limit:g}")
        check_norm_type("norm_type", norm_type)
        return cls(norm, value, norm_type) if norm is not None or value is not None else None

    def __call__(self, parameters: Iterable[Tensor], strategy: Strategy) -> Tensor:
        """Clip the gradients of these parameters, and return their total norm before clipping, on the device."""
        import torch

        parameters = list(parameters)
        total = strategy.gradients.norm_of(parameters, self.norm_type)
        if self.norm is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, self.norm, total)
        elif self.value is not None:
            torch.nn.utils.clip_grad_value_(parameters, self.value)
        return total


def check_norm_type(label: str, value: float) -> None:
    """Refuse an invalid kind of norm. It must be above 0; infinity means the maximum absolute value."""
    if value != float("inf"):
        check_number(label, value, above=0)

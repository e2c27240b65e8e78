"""Clipping of gradients: what `Optim(clip_norm=...)` and GradClipHook both do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookline.common.checks import check_number
from hookline.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from hookline.strategies import Strategy


@dataclass(frozen=True)
class Clip:
    """The greatest total norm of gradients, or the greatest absolute value of each; just one of the two."""

    norm: float | None = None
    value: float | None = None
    norm_type: float = 2.0

    @classmethod
    def of(cls, norm: float | None, value: float | None, norm_type: float = 2.0) -> Clip | None:
        """What was asked of an Optim, checked; None where nothing was."""
        if norm is not None and value is not None:
            raise ConfigError("give clip_norm or clip_value, not both")
        for name, limit in (("norm", norm), ("value", value)):
            if limit is not None:
                check_number(f"clip_{name}", limit, above=0)
        check_norm_type("norm_type", norm_type)
        return cls(norm, value, norm_type) if norm is not None or value is not None else None

    def __call__(self, parameters: Iterable[Tensor], strategy: Strategy) -> Tensor:
        """Clip the gradients of these parameters, and return their total norm before that, on the device."""
        import torch

        parameters = list(parameters)
        total = strategy.gradient_norm(parameters, self.norm_type)
        if self.norm is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, self.norm, total)
        elif self.value is not None:
            torch.nn.utils.clip_grad_value_(parameters, self.value)
        return total


def check_norm_type(label: str, value: float) -> None:
    """Refuse what is no kind of norm: a number above 0, or infinity for the greatest absolute value."""
    if value != float("inf"):
        check_number(label, value, above=0)

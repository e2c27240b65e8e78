"""Where accelerate's steps are just torch's, torch's are called.

accelerate looks for an optional library every time an optimizer steps, and at a signature every time gradients are
cleared, which together take longer than a small step. Where neither a scaler nor an engine of its own is involved, all
that it then does is to call torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accelerate import Accelerator  # type: ignore[import-untyped]

#: Ways of distribution in which accelerate calls torch's own backward pass and step.
PLAIN = frozenset({"NO", "MULTI_CPU", "MULTI_GPU"})
#: Optimizers that make their step in the backward pass.
STEP_IN_BACKWARD = frozenset({"Lomo", "AdaLomo"})


def is_plain(accelerator: Accelerator) -> bool:
    """Whether backward passes and steps, unless gradients are accumulated, are torch's own: no scaler, no engine."""
    return accelerator.scaler is None and accelerator.distributed_type in PLAIN


def inner_optimizer(optimizer: Any) -> Any:
    """What to step and clear where steps are torch's own."""
    inner = getattr(optimizer, "optimizer", optimizer)
    return optimizer if type(inner).__name__ in STEP_IN_BACKWARD else inner

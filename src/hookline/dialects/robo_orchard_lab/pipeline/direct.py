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
    """Whether backward passes and steps are torch's own: no scaler, no window, no engine."""
    plain = accelerator.scaler is None and accelerator.gradient_accumulation_steps == 1
    return bool(plain and getattr(accelerator.distributed_type, "value", "") in PLAIN)


def inner_optimizer(accelerator: Accelerator, optimizer: Any) -> Any:
    """What to step and clear: torch's optimizer where that is the same, and otherwise accelerate's."""
    inner = getattr(optimizer, "optimizer", optimizer)
    return optimizer if not is_plain(accelerator) or type(inner).__name__ in STEP_IN_BACKWARD else inner

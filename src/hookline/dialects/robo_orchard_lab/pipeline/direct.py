"""Call torch directly where accelerate would only call torch.

accelerate searches for an optional library at every optimizer step, and inspects a signature whenever gradients are
cleared. Together this takes longer than a small step. If neither a scaler nor a special engine (such as DeepSpeed) is
involved, accelerate then only calls torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accelerate import Accelerator  # type: ignore[import-untyped]

#: Types of distribution in which accelerate calls torch's own backward pass and step.
PLAIN = frozenset({"NO", "MULTI_CPU", "MULTI_GPU"})
#: Optimizers that make their step in the backward pass.
STEP_IN_BACKWARD = frozenset({"Lomo", "AdaLomo"})


def is_plain(accelerator: Accelerator) -> bool:
    """Return whether torch itself does backward passes and steps (no scaler, no engine), outside accumulation."""
    return accelerator.scaler is None and accelerator.distributed_type in PLAIN


def inner_optimizer(optimizer: Any) -> Any:
    """Return the optimizer to step and clear when torch is called directly."""
    inner = getattr(optimizer, "optimizer", optimizer)
    return optimizer if type(inner).__name__ in STEP_IN_BACKWARD else inner

"""Weights of NaN or Inf are found while the state is copied for a save, and never become a checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from hookline.common.sharding import local_part
from hookline.errors import NumericsError

if TYPE_CHECKING:
    from torch import Tensor


def check_weights_are_finite(state: Mapping[str, Any], weights: Collection[str], iteration: int) -> None:
    """End the run if a weight is NaN or Inf, before it is saved. Its gradient can be NaN although the loss is finite.

    Buffers may contain an Inf on purpose, as masks do, but never a NaN.
    """
    odd = find_non_finite(state, weights)
    if odd:
        more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
        raise NumericsError(
            f"{', '.join(odd[:3])}{more} of the model became NaN or Inf by iteration {iteration}, although the loss "
            "may be finite; nothing was saved. Check the gradients (a square root of 0 or a division by 0), the "
            "learning rate and the precision, and resume from the previous checkpoint"
        )


def find_non_finite(state: Mapping[str, Any], weights: Collection[str]) -> list[str]:
    """Return the names of weights that contain a NaN or an Inf, and of other tensors that contain a NaN.

    This waits for the device only once, unless it finds a suspect.
    """
    import torch

    # The numbers of a complex tensor count as pairs of real ones.
    state = {name: local_part(value) for name, value in state.items()}  # each process looks at its own part
    real = {
        name: torch.view_as_real(value.resolve_conj())
        if isinstance(value, torch.Tensor) and value.is_complex() and value.layout is torch.strided
        else value
        for name, value in state.items()
    }
    named = {name: value.detach() for name, value in real.items() if _is_floating(value)}
    if not named:
        return []
    # A sum is a quick check: it is finite only if all of its terms are. One that is not finite may have overflowed.
    sums = [value.sum(dtype=torch.float32) for value in named.values()]
    finite = torch.stack([each.to(sums[0].device, non_blocking=True) for each in sums]).isfinite().tolist()
    suspects = [name for name, fine in zip(named, finite, strict=True) if not fine]
    return [name for name in suspects if _is_odd(named[name], only_nan=name not in weights)]


def _is_floating(value: Any) -> bool:
    return hasattr(value, "is_floating_point") and value.is_floating_point() and value.numel() > 0


def _is_odd(value: Tensor, only_nan: bool) -> bool:
    return bool((value.isnan() if only_nan else ~value.isfinite()).any())

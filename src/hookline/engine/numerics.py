"""Checks for NaN and Inf. They run where numbers are read anyway, so that no step waits for the device."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from hookline.common.sharding import local_part
from hookline.errors import NumericsError
from hookline.record.hub import read_numbers

KEPT = 100  # losses that wait for a check

if TYPE_CHECKING:
    from torch import Tensor

    from hookline.engine.runner_host import RunnerHost


def check_recorded_loss(runner: RunnerHost, done: int, since: int | None = None) -> None:
    """End the run if a loss since the last record is NaN or Inf, before it is logged like a normal result.

    `done` is the number of finished iterations; the counter is not yet advanced when a hook logs. `since` is that of
    the last record, if it is known.
    """
    history = runner.hub.history("train/loss")
    if history.values:
        _refuse_non_finite(runner, history.last(max(history.fresh, 1)), done, since)


def keep_loss(runner: RunnerHost, loss: Tensor) -> None:
    """Keep the loss of an iteration for `check_losses`. The loop does this itself, so no hook is needed for it."""
    losses = runner.losses
    losses.append(loss if not loss.requires_grad else loss.item() if runner.on_cpu else loss.detach())
    if len(losses) == KEPT:
        check_losses(runner, runner.position.iter + 1)


def check_losses(runner: RunnerHost, done: int) -> None:
    """End the run if a loss since the last check is NaN or Inf, before the state is saved or training ends.

    `done` is the number of finished iterations.
    """
    losses, since = read_numbers(runner.losses), runner.losses_since
    runner.losses.clear()
    runner.losses_since = done
    _refuse_non_finite(runner, losses, done, since)


def check_result(runner: RunnerHost) -> None:
    """End the run with an error if training ended with a loss or with weights of NaN or Inf."""
    check_losses(runner, runner.iter)
    if runner.saving.saved_at != runner.iter:  # a save has just checked the weights
        check_weights_are_finite(runner.model.state_dict(), runner.weight_names(), runner.iter)


def _refuse_non_finite(runner: RunnerHost, losses: list[float], done: int, since: int | None) -> None:
    """End the run if one of the newest losses, of which the last belongs to iteration `done`, is NaN or Inf.

    They are those of all iterations after `since`, unless some were skipped. Then the iteration is only a limit.
    """
    # With fp16, only the newest loss counts: the scaler skips a step that overflows, and the next one may be fine.
    if all(map(math.isfinite, losses)):
        return
    first = len(losses) - 1 if runner.precision == "fp16" else 0
    is_exact = since is not None and len(losses) == done - since
    for index, loss in enumerate(losses[first:], first):
        if not math.isfinite(loss):
            iteration = done - len(losses) + index + 1
            rank = "" if runner.strategy.acts_alone else f" in rank {runner.strategy.rank}"
            where = (
                f"at iteration {iteration}{_epoch_of(runner, iteration)}" if is_exact else f"by iteration {iteration}"
            )
            error = NumericsError(
                f"the loss has become {loss} {where}{rank}, so training cannot continue; check the learning rate, the "
                f"data and the precision, {runner.nan_hint}"
            )
            error.is_placed = True
            raise error


def _epoch_of(runner: RunnerHost, iteration: int) -> str:
    """Return the epoch of an iteration and its number in it, if all epochs have the same, known length."""
    position, length = runner.position, runner.train_loop.length if runner.train_loop.by_epoch else None
    if not length or position.iter != position.epoch * length + position.batch:
        return ""
    epoch, batch = divmod(iteration - 1, length)
    return f" (epoch {epoch + 1}, batch {batch + 1} of {length})"


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

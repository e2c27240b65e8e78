"""Checks for NaN and Inf. They run where numbers are read anyway, so that no step waits for the device."""

from __future__ import annotations

import math
import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hookline.errors import NumericsError
from hookline.record.history import read_numbers
from hookline.rundir import loss_bits
from hookline.rundir.loss_bits import NO_LOSS, SIZE
from hookline.state.finite import check_weights_are_finite

KEPT = 100  # losses that wait for a check

if TYPE_CHECKING:
    from hookline.engine.training import Training
    from hookline.record.hub import MessageHub


class Losses(list[Any]):
    """The losses that are not checked yet, oldest first: numbers, tensors, and `NO_LOSS` for iterations without one."""

    #: The number of iterations that were finished before the first of them.
    since = 0
    #: The losses that were taken last, and those that were taken before.
    taken: list[float] | tuple[()] = ()
    before: list[float] | tuple[()] = ()
    #: The open file of the losses of the run, in the main process.
    file: int | None = None

    def take(self, done: int) -> tuple[list[float], int]:
        """Return all losses as numbers, with `since`, and record them. `done` is the number of finished iterations."""
        losses, since = read_numbers(self), self.since
        self.clear()
        self.before, self.taken, self.since = self.taken, losses, done
        if self.file is not None:
            data = struct.pack(f"<{len(losses)}d", *losses)
            try:
                os.pwrite(self.file, data, since * SIZE)
            except OSError as error:
                self._close()
                loss_bits.report(error)
        return losses, since

    def end(self, done: int) -> None:
        """Record the losses of a run that ends, whatever has happened: after a failure, a device may not answer."""
        with suppress(Exception):
            self.take(done)
        self._close()

    def _close(self) -> None:
        descriptor, self.file = self.file, None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)


def check_recorded_loss(training: Training, hub: MessageHub, done: int, since: int | None = None) -> None:
    """End the run if a loss since the last record is NaN or Inf, before it is logged like a normal result.

    `done` is the number of finished iterations; the counter is not yet advanced when a hook logs. `since` is the
    number at the last record, if it is known.
    """
    history = hub.history("train/loss")
    if history.values:
        _refuse_non_finite(training, history.last(max(history.fresh, 1)), done, since)


def check_losses(training: Training, done: int) -> None:
    """End the run if a loss since the last check is NaN or Inf, before the state is saved or training ends.

    `done` is the number of finished iterations.
    """
    losses, since = training.losses.take(done)
    _refuse_non_finite(training, losses, done, since)


def check_result(training: Training) -> None:
    """End the run with an error if training ended with a loss or with weights of NaN or Inf, or trained nothing."""
    done, model = training.position.iter, training.compute.model
    training.recheck()
    check_losses(training, done)
    if training.host.saving.saved_at != done:  # a save has just checked the weights
        check_weights_are_finite(model.state_dict(), [name for name, _ in model.named_parameters()], done)


def _refuse_non_finite(training: Training, losses: list[float], done: int, since: int | None) -> None:
    """End the run if one of the newest losses, of which the last belongs to iteration `done`, is NaN or Inf.

    `losses` has all iterations after `since`, unless some were skipped. Then the iteration is only a limit.
    """
    # With fp16, only the newest loss counts: the scaler skips a step that overflows, and the next one may be fine.
    if all(map(math.isfinite, losses)):
        return
    is_exact = since is not None and len(losses) == done - since
    numbers = [(index, loss) for index, loss in enumerate(losses) if loss is not NO_LOSS]
    for index, loss in numbers[-1:] if training.compute.precision == "fp16" else numbers:
        if not math.isfinite(loss):
            iteration = done - len(losses) + index + 1
            rank = "" if training.strategy.acts_alone else f" in rank {training.strategy.rank}"
            where = (
                f"at iteration {iteration}{_epoch_of(training, iteration)}" if is_exact else f"by iteration {iteration}"
            )
            error = bad_loss(
                loss, f"{where}{rank}", f"the learning rate, the data and the precision, {training.host.hints.nan}"
            )
            error.is_placed, error.step = True, iteration
            raise error


def bad_loss(loss: float, where: str, check: str) -> NumericsError:
    """Return the error about a loss that is NaN or Inf."""
    return NumericsError(f"the loss has become {loss} {where}, so training cannot continue; check {check}")


def _epoch_of(training: Training, iteration: int) -> str:
    """Return the epoch of an iteration and its number in it, if all epochs have the same, known length."""
    position, length = training.position, training.loop.length if training.loop.by_epoch else None
    if not length or position.iter != position.epoch * length + position.batch:
        return ""
    epoch, batch = divmod(iteration - 1, length)
    return f" (epoch {epoch + 1}, batch {batch + 1} of {length})"

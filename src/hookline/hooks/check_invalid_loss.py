"""CheckInvalidLossHook: what to do about a loss that is NaN or Inf, before it reaches the weights."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from hookline.common.checks import check_choice, check_int
from hookline.engine.numerics import find_non_finite
from hookline.errors import NumericsError
from hookline.plan.hook import Hook
from hookline.record.hub import read_numbers

if TYPE_CHECKING:
    from torch import Tensor

    from hookline.engine.runner import Runner


class Loss(NamedTuple):
    """The loss of an iteration, counted from 1."""

    iteration: int
    value: Any

    def __str__(self) -> str:
        return f"the loss of iteration {self.iteration} is {self.value}"


class CheckInvalidLossHook(Hook):
    """Ends the run, leaves out the batch, or stops training when a loss is NaN or Inf.

    It looks before the backward pass. `raise` ends the run with exit code 4 before anything has come of the loss: the
    weights are those before the step, which is what `save_on_exception` of CheckpointHook then saves. `skip` leaves the
    batch out, in an accumulation window just this one, and counts it as `train/skipped`; the learning rates move on as
    ever. `stop` leaves the batch out and ends training in order, with the last checkpoint; `hookline train` then exits
    with 4, too.

    With an `interval` above 1 the losses in between are kept on the device and read at the next check, or before a
    save. Then the error names the first bad one, but it was trained on by then, so `skip` and `stop` cannot help any
    more: they end the run just as `raise` does. Only with fp16 do they pass over it, because the gradient scaler has
    left out such a step. LoggerHook and CheckpointHook refuse a bad loss as well when they come across one
    earlier.

    A step that updates by itself is checked at each of its updates; once one was bad, the further ones of that
    iteration are left out, and those before it stay.

    Cost: one wait for the device every `interval` iterations; in between, a reference to a tensor, and no work for the
    device. On the CPU there is nothing to wait for.

    Example:
        from hookline.hooks import CheckInvalidLossHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[CheckInvalidLossHook(policy="skip", max_skips=10)]).train()

    YAML:
        custom_hooks:
          - {type: CheckInvalidLossHook, policy: skip, max_skips: 10}

    Args:
        interval: Every how many iterations.
        policy: `raise` an error, `skip` the batch, or `stop` training in order.
        max_skips: How many batches in a row may be skipped; one more ends the run with an error.
    """

    # After hooks that put another loss there, before LoggerHook.
    priority = 55

    def __init__(
        self, interval: int = 1, policy: Literal["raise", "skip", "stop"] = "raise", max_skips: int = 100
    ) -> None:
        check_int("CheckInvalidLossHook: interval", interval, least=1)
        check_choice("CheckInvalidLossHook: policy", policy, ("raise", "skip", "stop"))
        check_int("CheckInvalidLossHook: max_skips", max_skips, least=1)
        self.interval = interval
        self.policy = policy
        self.max_skips = max_skips
        #: How many batches were skipped so far, how many of them in a row, and the iteration of the last.
        self.skipped = 0
        self.in_a_row = 0
        self.skipped_at = 0
        self._unread: list[Loss] = []
        self._checked_at = -1

    def how_often(self) -> dict[str, int]:
        """Iterations."""
        return {"before_backward": self.interval}

    def idle_points(self, runner: Runner) -> list[str]:
        """There is no loss between two checks when every one is checked."""
        return ["after_backward", "before_save_checkpoint", "after_train"] if self.interval == 1 else []

    def before_train(self, runner: Runner) -> None:
        """Nothing is left to read from an earlier run; one that was stopped here is still not fine."""
        self._unread = []
        if runner.stopped and runner.stopped.by == runner.plan.name_of(self):
            runner.requests.end_with(NumericsError.exit_code)

    def before_backward(self, runner: Runner, outputs: dict[str, Any]) -> None:
        """Check this loss, and those since the last check."""
        self._checked_at = runner.iter
        if runner.skipped:  # it is left out already
            return
        self._unread.append(Loss(runner.iter + 1, outputs["loss"].detach()))
        *earlier, own = self._read()
        self._refuse_earlier(runner, earlier)
        if not math.isfinite(own.value):
            self._act(runner, own)

    def after_backward(self, runner: Runner, outputs: dict[str, Any]) -> None:
        """Keep the loss for the next check."""
        if self._checked_at != runner.iter:
            loss: Tensor = outputs["loss"]
            self._unread.append(Loss(runner.iter + 1, loss.detach()))

    def before_save_checkpoint(self, runner: Runner) -> None:
        """Nothing is saved on a bad loss, and nothing is left that a resumed run would have to read."""
        self._refuse_earlier(runner, self._read())

    def after_train(self, runner: Runner) -> None:
        """The losses since the last check."""
        self._refuse_earlier(runner, self._read())

    # -- what comes of a bad one

    def _read(self) -> list[Loss]:
        """The losses that were kept, as numbers."""
        unread, self._unread = self._unread, []
        values = read_numbers(loss.value for loss in unread)
        return [Loss(loss.iteration, value) for loss, value in zip(unread, values, strict=True)]

    def _refuse_earlier(self, runner: Runner, losses: list[Loss]) -> None:
        bad = next((loss for loss in losses if not math.isfinite(loss.value)), None)
        scaled = any(optim.scaler is not None for optim in runner.optims.values())
        if bad is None or (scaled and self.policy != "raise"):
            return
        self._fail(f"{bad}, and was trained on before this check; interval: 1 finds it in time")

    def _act(self, runner: Runner, loss: Loss) -> None:
        odd = find_non_finite(dict(runner.model.named_parameters()), ())
        if odd:
            self._fail(
                f"{loss}, because {odd[0]} of the model has become NaN in an earlier step, although its loss was "
                "finite; autograd's anomaly detection names the line that such a gradient comes from"
            )
        if self.policy == "raise":
            self._fail(
                f"{loss}; its step was not made, so the weights are as before. Look at the learning rate, the data and "
                "the precision, or leave such batches out with policy: skip"
            )
        if self.policy == "skip":
            self._count(runner, loss)
        runner.skip_step(str(loss))
        if self.policy == "stop":
            # The window is flushed, because no good batch may ever fill it.
            runner.stop(str(loss), flush_window=True, exit_code=NumericsError.exit_code)

    def _count(self, runner: Runner, loss: Loss) -> None:
        """Count a batch that is left out, and say so: the first time on the screen, too."""
        follows = self.skipped and loss.iteration - self.skipped_at <= self.interval
        self.in_a_row = self.in_a_row + 1 if follows else 1
        if self.in_a_row > self.max_skips:
            self._fail(
                f"{loss}, after {self.max_skips} left out in a row (max_skips). Look at the learning rate, the data "
                "and the precision"
            )
        self.skipped += 1
        self.skipped_at = loss.iteration
        runner.hub.update_scalar("train/skipped", self.skipped)
        line = f"CheckInvalidLossHook: {loss}; its batch is left out ({self.skipped} so far)"
        if self.skipped == 1:
            runner.terminal.say(line)
        else:
            runner.terminal.detail(partial(str, line))

    def _fail(self, message: str) -> NoReturn:
        raise NumericsError(f"CheckInvalidLossHook: {message}")

    def state_dict(self) -> dict[str, Any]:
        """What was skipped."""
        return {"skipped": self.skipped, "in_a_row": self.in_a_row, "skipped_at": self.skipped_at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on counting from there."""
        self.skipped, self.in_a_row, self.skipped_at = state["skipped"], state["in_a_row"], state["skipped_at"]

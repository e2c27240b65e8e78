"""CheckInvalidLossHook: handles a loss that is NaN or Inf before it reaches the weights."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from hookline.common.checks import check_choice, check_int
from hookline.errors import NumericsError
from hookline.record.history import read_numbers
from hookline.runner.hook import Hook
from hookline.state.finite import find_non_finite

if TYPE_CHECKING:
    from torch import Tensor

    from hookline.plan.milestones import Milestone
    from hookline.runner.runner import Runner


class Loss(NamedTuple):
    """The loss of one iteration. Iterations are counted from 1."""

    iteration: int
    value: Any

    def __str__(self) -> str:
        return f"the loss of iteration {self.iteration} is {self.value}"


class CheckInvalidLossHook(Hook):
    """Ends the run, skips the batch, or stops training when a loss is NaN or Inf.

    The loss is checked before the backward pass. There are three policies:

    - `raise` ends the run with exit code 4. The optimizer step is not taken.
    - `skip` skips the batch and records the number of skipped batches as `train/skipped`. In an accumulation window,
      only this batch is skipped. Learning rates advance as usual.
    - `stop` skips the batch and ends training normally, with a last checkpoint. `hookline train` then exits with code
      4, too.

    With an `interval` above 1, the losses in between stay on the device until the next check or save. The error names
    the first bad loss, but training has already used it, so `skip` and `stop` end the run as `raise` does. With fp16,
    they ignore it, because the gradient scaler has skipped that step.

    If a step calls `optim.update` itself, each of its updates is checked. After a bad loss, the remaining updates of
    that iteration are skipped.

    Cost: one wait for the device every `interval` iterations.

    Example:
        from hookline.hooks import CheckInvalidLossHook
        from hookline.testing import toy_runner

        toy_runner(custom_hooks=[CheckInvalidLossHook(policy="skip", max_skips=10)]).train()

    YAML:
        custom_hooks:
          - {type: CheckInvalidLossHook, policy: skip, max_skips: 10}

    Args:
        interval: Check every `interval` iterations.
        policy: `raise` an error, `skip` the batch, or `stop` training normally.
        max_skips: The number of batches in a row that may be skipped. One more ends the run with an error.
    """

    # After hooks that replace the loss, and before LoggerHook.
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
        #: The number of batches skipped so far, how many of them in a row, and the iteration of the last one.
        self.skipped = 0
        self.in_a_row = 0
        self.skipped_at = 0
        self._unread: list[Loss] = []
        self._checked_at = -1

    def how_often(self) -> dict[str, int]:
        """Return the interval of the check, in iterations."""
        return {"before_backward": self.interval}

    def must_reach(self, runner: Runner) -> list[Milestone]:
        """Return nothing: the losses since the last check are checked at every save and at the end."""
        return []

    def idle_points(self, runner: Runner) -> list[str]:
        """Return the points to skip: if every loss is checked, none has to be kept for later."""
        return ["after_backward", "before_save_checkpoint", "after_train"] if self.interval == 1 else []

    def before_train(self, runner: Runner) -> None:
        """Drop unread losses of an earlier run. If this hook stopped that run, keep its exit code."""
        self._unread = []
        if runner.stopped and runner.stopped.by == runner.plan.name_of(self):
            runner.end_with(NumericsError.exit_code)

    def before_backward(self, runner: Runner, outputs: dict[str, Any]) -> None:
        """Check this loss, and the losses since the last check."""
        self._checked_at = runner.iter
        if runner.skipped:  # another hook has already skipped this batch
            return
        self._unread.append(Loss(runner.iter + 1, outputs["loss"].detach()))
        *earlier, newest = self._read()
        self._refuse_earlier(runner, earlier)
        if not math.isfinite(newest.value):
            self._act(runner, newest)

    def after_backward(self, runner: Runner, outputs: dict[str, Any]) -> None:
        """Keep the loss for the next check."""
        if self._checked_at != runner.iter:
            loss: Tensor = outputs["loss"]
            self._unread.append(Loss(runner.iter + 1, loss.detach()))

    def before_save_checkpoint(self, runner: Runner) -> None:
        """Check the losses since the last check, so that no save contains the effect of a bad one."""
        self._refuse_earlier(runner, self._read())

    def after_train(self, runner: Runner) -> None:
        """Check the losses since the last check."""
        self._refuse_earlier(runner, self._read())

    # -- bad losses

    def _read(self) -> list[Loss]:
        """Return the kept losses as numbers, and forget them."""
        unread, self._unread = self._unread, []
        values = read_numbers(loss.value for loss in unread)
        return [Loss(loss.iteration, value) for loss, value in zip(unread, values, strict=True)]

    def _refuse_earlier(self, runner: Runner, losses: list[Loss]) -> None:
        bad = next((loss for loss in losses if not math.isfinite(loss.value)), None)
        scaled = any(optim.scaler is not None for optim in runner.optims.values())
        if bad is None or (scaled and self.policy != "raise"):
            return
        self._fail(bad, f"{bad}, and training used it before this check; set interval: 1 to find it in time")

    def _act(self, runner: Runner, loss: Loss) -> None:
        odd = find_non_finite(dict(runner.model.named_parameters()), ())
        if odd:
            self._fail(
                loss,
                f"{loss}, because the model's {odd[0]} became NaN in an earlier step, although the loss of that step "
                "was finite; autograd's anomaly detection shows the line that such a gradient comes from",
            )
        if self.policy == "raise":
            self._fail(
                loss,
                f"{loss}; the optimizer step was not taken, so the weights are unchanged. Check the learning rate, the "
                "data and the precision, or skip such batches with policy: skip",
            )
        if self.policy == "skip":
            self._count(runner, loss)
        runner.skip_step(str(loss))
        if self.policy == "stop":
            # Without the flush, training would wait for a good batch to fill the window, and there may be none.
            runner.stop(str(loss), flush_window=True, exit_code=NumericsError.exit_code)

    def _count(self, runner: Runner, loss: Loss) -> None:
        """Count a skipped batch and log it. The first one is also shown on the screen."""
        follows = self.skipped and loss.iteration - self.skipped_at <= self.interval
        self.in_a_row = self.in_a_row + 1 if follows else 1
        if self.in_a_row > self.max_skips:
            self._fail(
                loss,
                f"{loss}, after {self.max_skips} skipped batch{'es' * (self.max_skips > 1)} in a row (max_skips). "
                "Check the learning rate, the data and the precision",
            )
        self.skipped += 1
        self.skipped_at = loss.iteration
        runner.hub.update_scalar("train/skipped", self.skipped)
        line = f"CheckInvalidLossHook: {loss}; skipped its batch ({self.skipped} so far)"
        if self.skipped == 1:
            runner.terminal.say(line)
        else:
            runner.terminal.detail(partial(str, line))

    def _fail(self, loss: Loss, message: str) -> NoReturn:
        error = NumericsError(f"CheckInvalidLossHook: {message}")
        error.step = loss.iteration
        raise error

    def state_dict(self) -> dict[str, Any]:
        """Return the counts of skipped batches."""
        return {"skipped": self.skipped, "in_a_row": self.in_a_row, "skipped_at": self.skipped_at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the counts."""
        self.skipped, self.in_a_row, self.skipped_at = state["skipped"], state["in_a_row"], state["skipped_at"]

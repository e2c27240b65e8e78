"""The training loop of `hookline.engine.loops`, turned inside out: a generator, so that the user owns the loop.

    drive              around_train, then passes over the data
      PASS_BEGINS      the caller may begin a pass
      a batch          the caller computes its loss, and sends the result of the step back
      STEPPED          the update was made; the caller may do more, before the iteration is counted
      PASS_ENDED       the epoch was counted and saved; the caller may run its own code between epochs

The caller sends `LEAVE` to end training early, and throws an error in, so that hooks and scopes see both.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from enum import Enum
from typing import TYPE_CHECKING, Any

from torch import Tensor

from hookline.engine.loops import around_pass, around_train, handle_requests
from hookline.engine.steps import as_outputs, own_outputs
from hookline.plan.calls import blame_step
from hookline.run.requests import Stop

if TYPE_CHECKING:
    from hookline.engine.training import Training


class Mark(Enum):
    """A place in the loop at which the caller may act, besides a batch."""

    PASS_BEGINS = "before a pass over the data"
    STEPPED = "after a step"
    PASS_ENDED = "after a pass over the data"


class Answer(Enum):
    """What a caller sends instead of the result of a step."""

    SKIPPED = "skipped"
    LEAVE = "leave"


class Stepped:
    """The result of a step whose updates were made in the body of the loop."""

    def __init__(self, result: Any) -> None:
        self.result = result


PASS_BEGINS, STEPPED, PASS_ENDED = Mark
SKIPPED, LEAVE = Answer

Drive = Generator[Any, Any, None]


class Inverted:
    """The training loop as a generator.

    Args:
        training: Drives the training.
    """

    def __init__(self, training: Training) -> None:
        self.training = training
        #: True if the caller has its own code between epochs.
        self.pauses = False
        #: True if steps of the optimizers inside the body are followed, because the body may make them.
        self.follows = True
        self._following = ExitStack()
        #: The finished optimizer steps when the current batch was given to the caller.
        self.updates_before = 0

    def drive(self) -> Drive:
        """Train from the current position to the end, to a stop, or until the caller leaves."""
        training, position = self.training, self.training.position
        with around_train(training):
            if self.pauses and position.between_epochs:  # the run was interrupted in the caller's code
                yield PASS_BEGINS
                if (yield from self._pause()):
                    return
            position.between_epochs = False
            while training.continues:
                if (yield PASS_BEGINS) is LEAVE:
                    self._leave()
                    return
                with around_pass(training):
                    left = yield from self._one_pass()
                if left or (yield from self._pause()):
                    return

    def _pause(self) -> Generator[Any, Any, bool]:
        """Let the caller run its own code after a pass, and handle the requests from it. Return whether it leaves."""
        training = self.training
        left = (yield PASS_ENDED) is LEAVE
        training.position.between_epochs = False
        if left and not training.requests.stopped:
            self._leave()
        elif training.requests.pending:
            handle_requests(training.host)
        return left

    def _one_pass(self) -> Generator[Any, Any, bool]:
        """Train on the rest of this pass; see `hookline.engine.loops.one_pass`. Return whether the caller leaves."""
        training, position, current = self.training, self.training.position, self.training.current
        by_epoch = training.loop.by_epoch
        for batch, last in training.begin_pass():
            plan, batch_idx = training.plan, position.batch
            batch = training.begin_iteration(batch, last)
            if plan.around_train_iter:  # testing is cheaper than entering an empty scope
                with plan.around("train_iter", batch_idx, batch):
                    result, loss = yield from self._iterate(batch_idx, batch)
            else:
                result, loss = yield from self._iterate(batch_idx, batch)
            if result is LEAVE:
                self._leave()
                return True
            if not by_epoch:
                position.between_epochs = self.pauses and current.ends_epoch
            # A batch that a hook has skipped was not shown to the caller.
            if result is not None and (yield STEPPED) is LEAVE:
                training.end_iteration(loss)
                if not training.requests.stopped:
                    self._leave()
                return True
            if training.end_iteration(loss):
                return False
        training.end_pass()
        position.between_epochs = self.pauses
        return False

    def _iterate(self, batch_idx: int, batch: Any) -> Generator[Any, Any, tuple[Any, Tensor | None]]:
        """Call the points of an iteration around the caller's step; see `hookline.engine.loops.train_iter`.

        Return the result of the step, None if the caller was not asked, and the loss of a step that was not skipped.
        """
        training, plan, requests = self.training, self.training.plan, self.training.requests
        if plan.before_train_iter:
            plan.before_train_iter(batch_idx, batch)
            batch = training.current.batch  # a hook may have replaced it
        if plan.may_skip_early:
            training.agree_on_skip()
            training.optims.take_joined()
        result: Any = None
        outputs: dict[str, Any] | None = None
        try:
            if not requests.skip:
                wrapped = plan.around_train_forward or training.wraps_forward or self.follows
                result = (yield from self._wrapped_step(batch)) if wrapped else (yield batch)
                if result.__class__ is Tensor and result.numel() == 1:
                    outputs = {"loss": result}
                    training.update(result, outputs)  # type: ignore[misc]  # several optims send a Stepped
                elif result is LEAVE:
                    return result, None
                elif result is not SKIPPED:
                    outputs = self._update(result)
            if (training.ends_window or requests.flush_window) and not self.follows:
                training.flush_windows()
        except Exception as error:
            training.refuse_resumed_optimizer(error)
            blame_step(error, plan.host)
            raise
        if outputs is None:
            return result, None
        loss = outputs.get("loss")
        if plan.after_train_iter:
            if loss is not None:
                outputs["loss"] = loss = loss.detach()  # so that a hook that keeps it does not keep the graph
            plan.after_train_iter(batch_idx, batch, outputs)
        return result, None if requests.skip else loss

    def _wrapped_step(self, batch: Any) -> Generator[Any, Any, Any]:
        """Give the batch to the caller inside the scopes of a forward pass, and return the result of its step."""
        training, plan = self.training, self.training.plan
        with self._following:
            if self.follows:
                self.updates_before = training.optims.updates
                self._following.enter_context(training.optims.following_steps())
            with plan.around_forward_of_training(batch), training.compute.autocast(), training.syncing_forward():
                return (yield batch)

    def stop_following(self) -> None:
        """Stop looking for steps of the optimizers in the body: `update` makes them."""
        self.follows = False
        self._following.close()

    def _update(self, result: Any) -> dict[str, Any]:
        """Update the weights with the result of a step, unless the body has done this. Return the outputs."""
        training = self.training
        if result.__class__ is Stepped:
            if self.follows and training.optims.updates == self.updates_before:
                training.optims.open_windows()
            return own_outputs(result.result)
        outputs = as_outputs(result)
        assert training.update is not None, "a session with several optims sends a Stepped"
        training.update(outputs["loss"], outputs)
        return outputs

    def _leave(self) -> None:
        """Stop training for now, with the batches that were stepped. An open accumulation window ends with them."""
        training = self.training
        training.strategy.meet("the loop was left")
        if self.follows:  # the body accumulates gradients itself, and knows when to step
            training.optims.reset()
        else:
            training.flush_windows()
        training.requests.ask_stop(Stop("the loop was left", for_now=True))
        training.strategy.agree(training.requests, now=True)
        handle_requests(training.host)

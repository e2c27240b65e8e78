"""Training: drives a training, whoever owns the loop.

    for batch, last in training.begin_pass():
        batch = training.begin_iteration(batch, last)
        ...                                    # before_train_iter, the step, training.update, after_train_iter
        if training.end_iteration():           # counters, costs, requests: true if the loop must end
            break
    else:
        training.end_pass()

`hookline.engine.loops` is such a loop. A loop that hookline does not own makes its own backward passes and steps.
Contexts around it call the same verbs, and the points:

    with training.driving():
        while training.continues:
            with training.one_pass() as batches:
                for batch, last in batches:
                    with training.iteration(batch, last) as batch:
                        with training.forward(batch):
                            loss = loss_of(model, batch)
                        loss = training.take_loss(loss)
                        if loss is not None:   # a hook may skip a batch
                            loss.backward()
                            optimizer.step()
                            optimizer.zero_grad()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from torch import Tensor

from hookline.common.modes import in_mode
from hookline.data.batches import Batches, refuse_skip_of_replaced
from hookline.data.sharing import compared
from hookline.data.sources import as_resumable, is_shared
from hookline.data.transfer import Transfer, moved_ahead, to_device
from hookline.engine.driver import Driver
from hookline.engine.loops import around_pass, around_train, clear_skip, end_if_signaled, handle_requests
from hookline.engine.numerics import KEPT, Losses, check_losses, check_result
from hookline.errors import StorageError
from hookline.optim.weights import Weighing
from hookline.plan.calls import blame_step
from hookline.plan.scopes import NOTHING
from hookline.rundir.loss_bits import NO_LOSS

if TYPE_CHECKING:
    from hookline.engine.compute import Compute
    from hookline.engine.loop_specs import TrainLoop
    from hookline.optim.optims import Optims
    from hookline.optim.scheduled import When
    from hookline.state.host import Host


class Training(Driver):
    """The state of one call of `train`: the pass over the data, the current iteration, the losses.

    Args:
        host: The owner of the plan, the counters, the requests and the checkpoints.
        loop: The data, the step and the length.
        optims: The optimizers.
        compute: The model, its device and its precision.
        seed: The seed of the order of the data.
        prefetch: Move the next batch to a GPU while the current one is computed.
    """

    #: False if all batches count the same, however many samples they have.
    weighs_samples = True

    def __init__(
        self, host: Host, loop: TrainLoop, optims: Optims, compute: Compute, seed: int = 0, prefetch: bool = True
    ) -> None:
        super().__init__(host, loop.max_iters)
        self.loop, self.optims, self.compute, self.seed, self._prefetch = loop, optims, compute, seed, prefetch
        #: The pass over the data that is running.
        self.batches: Batches | None = None
        #: The losses that `hookline.engine.numerics` has not checked yet.
        self.losses = Losses()
        #: Called once, when the first pass begins: hooks may have changed the model and the optimizers by then.
        self.before_first_pass: Callable[[], None] | None = None
        #: Called after validations and at the end: a check that is too slow for every step. A save makes it, too.
        self.recheck: Callable[[], None] = lambda: None
        self._by_epoch = loop.by_epoch
        #: True once the first batches of the processes were compared, of a loader that shares the data itself.
        self._compared = False
        self._on_cpu, self._needs_transfer = compute.on_cpu, not compute.on_cpu
        #: True if an accumulation window has to end with the current batch.
        self.ends_window = False
        #: What a loop of others has passed to `take_loss` in this iteration, and whether it must end after it.
        self._outputs: dict[str, Any] | None = None
        self._must_end = False
        #: The counter in the last iteration of a training by iterations.
        self._last_iter = -1 if loop.max_iters is None else loop.max_iters - 1
        #: The model as the step calls it.
        self.wrapped = compute.wrapped
        #: The user's step, ready to be called with model and batch.
        self.call_step: Callable[..., Any] = (
            partial(loop.step, optim=optims.given) if loop.updates_itself else loop.step
        )
        #: The update after the step; None if the step calls `optim.update` itself.
        self.update: Callable[[Tensor, dict[str, Any]], None] | None = (
            None if loop.updates_itself or len(optims) != 1 else optims.sole.update
        )
        #: True if the forward pass of a step has a context besides the contexts of hooks.
        self.wraps_forward = compute.precision != "fp32" or (
            self.update is not None and self.strategy.gradients.sync_in_forward
        )
        self.weighing = Weighing(
            *(self.current, self.position, self.strategy, loop.weigher, optims), is_even=not self.weighs_samples
        )
        unit: When = "epoch" if loop.by_epoch else "iter"
        optims.attach(
            *(self.plan, compute.precision, compute.device, unit, self.batches_left),
            *(self.strategy, compute.wrapped, self.agree_on_skip, self.weighing),
        )

    # -- a pass over the data

    def begin_pass(self) -> Iterable[tuple[Any, bool]]:
        """Start or continue a pass at the current batch. Yield each batch, and whether it is the last.

        There is no batch if the run was stopped by what a resumed run had to do first.
        """
        self.requests.refuse_copy()
        batches = self.open_batches()
        if self.host.loading.pending:  # after the iterator was created, because that draws a random number
            self.resume()
            if self.requests.stopped:
                return ()
        check, self.before_first_pass = self.before_first_pass, None
        if check is not None:
            check()
        self.drop_stale_gradients()
        clear_skip(self.host)
        self.current.begin_pass()
        self.ends_window = False
        self._next_look = 0
        assert self.batches is not None, "it was opened"
        if check is not None and self.batches.reads_ahead:
            self.host.terminal.say(
                f"the {type(self.loop.dataloader).__name__} has no length, so each batch is read one step ahead, to "
                "know which is the last; if the model makes the data, train by max_iters, which reads no batch ahead"
            )
        return self.weighing.begin_pass(self.batches, batches)

    def open_batches(self) -> Iterable[tuple[Any, bool]]:
        """Create the iterator of the loader, at the current batch."""
        loop, position = self.loop, self.position
        resuming, state = self.host.loading.take_loader_state()
        loop.dataloader = self.strategy.share(loop.dataloader, pad=True)  # it may be new
        self.host.loading.check_data(in_epoch=position.batch > 0)
        if loop.skip.ranges:
            refuse_skip_of_replaced(self.host.loading.data_of_pass)
        self.batches = Batches(
            loop.dataloader,
            *(loop.limit_batches, position.epoch, position.batch, self.seed, state, resuming),
            on_failure=partial(end_if_signaled, self.host),
            waiting=self.ledger.parts["data"],
            ends=self.strategy.any,
            known=not loop.by_epoch,
            skip=loop.skip,
        )
        # Only a loader without a state of its own may be one batch ahead of the run.
        on_gpu = self.compute.device.type == "cuda"
        if self._prefetch and on_gpu and as_resumable(loop.dataloader) is not None:
            return moved_ahead(self.batches, Transfer(self.compute.device))
        if not (self.strategy.acts_alone or self._compared or is_shared(loop.dataloader)):
            self._compared = True
            return compared(self.batches, type(loop.dataloader).__name__, self.strategy.gather)
        return self.batches

    def begin_iteration(self, batch: Any, last: bool) -> Any:
        """Begin an iteration with a batch, and return the batch on the device of the run."""
        if self._needs_transfer:
            batch = to_device(batch, self.compute.device)
        self.current.batch = batch
        if last or self.position.iter == self._last_iter:
            self._mark_end(batch, last)
        if self.plan.may_leave_gradients:
            self.drop_stale_gradients()
        return batch

    def _mark_end(self, batch: Any, last: bool) -> None:
        """Note that a pass, or the training, ends with this batch."""
        self.current.ends_epoch = last
        self.current.ends_window = self.ends_window = self._by_epoch or self.position.iter == self._last_iter
        if last:
            self.weighing.mark_last(batch)

    def end_iteration(self, loss: Tensor | None = None) -> bool:
        """Count the iteration, keep its loss to be checked, and handle requests.

        Return whether the loop must end: training is over, or was stopped.
        """
        if loss is None:
            self.losses.append(NO_LOSS)
        else:
            self.losses.append(loss if not loss.requires_grad else loss.item() if self._on_cpu else loss.detach())
        position = self.position
        position.iter += 1
        position.batch += 1
        if position.iter >= self._next_look:
            self._look()
        if self.requests.pending or not self._by_epoch:
            if self.current.ends_epoch and not self._by_epoch:
                position.epoch, position.batch = position.epoch + 1, 0
            self.current.ends_window = self.ends_window = False
            handle_requests(self.host)
            if self.requests.stopped:
                return True
        return position.iter == self._max_iters

    def _look(self) -> None:
        """Measure one iteration of 31, and check the losses before there are too many."""
        done = self.position.iter
        if done >= self.ledger.next_turn:
            self.ledger.turn()
        if len(self.losses) >= KEPT:
            check_losses(self, done)
        self._next_look = min(self.ledger.next_turn, done + KEPT - len(self.losses))

    def end_pass(self) -> None:
        """End a pass whose batches are used up. The stream may be shorter now than when the run was saved."""
        if not self._by_epoch and self.position.batch:
            self.position.epoch, self.position.batch = self.position.epoch + 1, 0

    def end_epoch(self) -> None:
        """Count an epoch, after its last point, and handle requests."""
        self.position.epoch, self.position.batch = self.position.epoch + 1, 0
        handle_requests(self.host)

    @property
    def continues(self) -> bool:
        """Return whether there is more to train."""
        return not self.loop.is_over(self.position) and not self.requests.stopped

    def save_at_end(self) -> None:
        """Write the checkpoints that were requested at the end of training, and wait for those in the background."""
        self.strategy.agree(self.requests, now=True)
        if self.requests.saves:
            self.host.saving.save()
        self.host.saving.finish()

    def check_result(self) -> None:
        """End the run with an error if training ended with NaN or Inf, or trained nothing."""
        check_result(self)

    def resume_between_passes(self) -> None:
        """Restore the late states of a resumed run, and run a missed validation, unless the run is inside a pass.

        Inside a pass, `begin_pass` does this, after the iterator of the loader was created.
        """
        if self.position.batch == 0 or self.loop.is_over(self.position) or self.requests.stopped:
            self.host.loading.restore()
            handle_requests(self.host)

    # -- the step

    def syncing_forward(self) -> AbstractContextManager[Any]:
        """Return the context of a forward pass in which a strategy may decide whether to sync gradients."""
        if self.update is None or not self.strategy.gradients.sync_in_forward:
            return NOTHING
        return self.optims.sole.syncing_forward()

    def flush_windows(self) -> None:
        """End the open accumulation windows with this iteration."""
        self.current.ends_window = self.ends_window = True
        self.optims.flush()

    def in_mode(self) -> AbstractContextManager[None]:
        """Return the context in which the model is trained."""
        return in_mode(self.compute.model, training=True)

    # -- a loop of others, which makes its own backward passes and steps

    def driving(self) -> AbstractContextManager[None]:
        """Return the context of a loop of others: it calls the points of a training."""
        return around_train(self)

    @contextmanager
    def one_pass(self) -> Iterator[Iterator[tuple[Any, bool]]]:
        """Surround a pass over the data. Yield its batches; there is no more when training is over or was stopped."""
        with around_pass(self):
            yield self._batches_until_end()

    def _batches_until_end(self) -> Iterator[tuple[Any, bool]]:
        for batch, last in self.begin_pass():
            yield batch, last
            if self._must_end:
                return
        self.end_pass()

    @contextmanager
    def iteration(self, batch: Any, last: bool) -> Iterator[Any]:
        """Surround an iteration with its points, and yield its batch on the device. Then count it, and handle requests.

        Hooks see every step of the optimizers inside, whoever makes it. If a hook has `skipped` the batch, the body has
        nothing to do.
        """
        plan, batch_idx, self._outputs = self.plan, self.position.batch, None
        batch = self.begin_iteration(batch, last)
        with plan.around("train_iter", batch_idx, batch):
            plan.before_train_iter(batch_idx, batch)
            batch = self.current.batch  # a hook may have replaced it
            if plan.may_skip_early:
                self.agree_on_skip()
            is_called = not self.skipped
            try:
                with self.optims.following_steps():
                    yield batch
                    self.optims.end_backward()
            except Exception as error:
                self.refuse_resumed_optimizer(error)
                blame_step(error, plan.host)
                raise
            outputs: dict[str, Any] = self._outputs or {}
            if is_called:
                if isinstance(loss := outputs.get("loss"), Tensor):
                    outputs["loss"] = loss.detach()
                plan.after_train_iter(batch_idx, batch, outputs)
        self._must_end = self.end_iteration(None if self.skipped else outputs.get("loss"))

    @contextmanager
    def forward(self, batch: Any) -> Iterator[None]:
        """Surround the forward pass of a batch with the scope of hooks, in the precision of the run."""
        with self.plan.around_forward_of_training(batch), self.compute.autocast():
            yield

    def take_loss(self, loss: Tensor, outputs: dict[str, Any] | None = None, optim: str = "") -> Tensor | None:
        """Take the loss whose backward pass comes next, and return it: a hook may have replaced it, or skip it (None).

        Args:
            loss: The loss, with its graph.
            outputs: More that hooks see, by name.
            optim: The name of the optim that steps with this loss, if there are several.
        """
        self._outputs = {**(outputs or {}), "loss": loss}
        taken = (self.optims[optim] if optim else self.optims.sole).take_loss(self._outputs)
        return self._outputs["loss"] if taken else None

    @property
    def skipped(self) -> bool:
        """Return whether a hook has skipped the current batch."""
        return bool(self.requests.skip)

    # -- gradients, windows and skips

    def drop_stale_gradients(self) -> None:
        """Drop gradients that user code left behind outside an iteration."""
        self.optims.drop_stale_gradients(self.loop.updates_itself)

    def after_validation(self) -> None:
        """Undo what user code may have left behind in a validation, and check what it may have changed."""
        self.recheck()
        self.drop_stale_gradients()

    def batches_left(self) -> int | None:
        """Return the maximum size of an accumulation window that begins now; None if it is unknown."""
        # A step that calls `optim.update` itself decides how often it updates.
        return None if self.loop.updates_itself else self.batches_to_come()

    def batches_to_come(self) -> int | None:
        """Return the number of batches until windows have to end; None if unknown. The next pass may have new data."""
        if not self.loop.by_epoch:
            return None if self.loop.max_iters is None else self.loop.max_iters - self.position.iter
        length = self.loop.length_of_pass(self.position.epoch) if self.batches is None else self.batches.length
        return None if length is None else length - self.position.batch

    def agree_on_skip(self) -> None:
        """Skip the current batch if any process skips it."""
        reason = self.strategy.agree_on_first(self.requests.skip)
        if reason and not self.requests.skip:
            self.requests.ask_skip(reason)
            self.optims.skip()

    # -- errors

    def refuse_resumed_optimizer(self, error: Exception) -> None:
        """Turn an error of an optimizer's first step after a resume into one that names the checkpoint.

        Each optimizer has its own rules for its state, and torch does not check them when a state is loaded.
        """
        resumed_at = self.host.loading.resumed_at
        optims = self.optims.values()
        if resumed_at < 0 or self.position.iter - resumed_at >= max(optim.accumulate for optim in optims):
            return
        for frame, _ in walk_tb(error.__traceback__):
            if any(frame.f_locals.get("self") is optim.optimizer for optim in optims):
                kind = type(frame.f_locals["self"]).__name__
                raise StorageError(
                    f"{self.host.loading.source} cannot be used: {kind} cannot continue from the state in it: "
                    f"{type(error).__name__}: {error}"
                ) from error

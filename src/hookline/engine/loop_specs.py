"""TrainLoop and EvalLoop: the data, the step and the length of a stage of a run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from hookline.common.checks import Guarded, check_int
from hookline.common.escape import escaped
from hookline.common.numbers import count
from hookline.data.batches import length_of
from hookline.data.skipping import parse_skip
from hookline.data.weights import Weigher
from hookline.engine.metrics import Metrics
from hookline.engine.steps import call_model, updates_itself
from hookline.errors import ConfigError
from hookline.plan.functions import short_name

if TYPE_CHECKING:
    from torch import Tensor

    from hookline.run.position import Position


class LoopSpec(Guarded):
    """The base of both kinds of loops."""

    _other_names: ClassVar = {
        "loader": "dataloader",
        "data_loader": "dataloader",
        "batch_size": "dataloader.batch_size",
    }


class TrainLoop(LoopSpec):
    """The training loop: its data, its step, its length, and how often to validate.

    Args:
        dataloader: Yields the batches. It need not have a length.
        step: A function of `(model, batch)` that returns the loss. With a parameter named `optim`, it calls
            `optim.update` itself. Without a step, the model is called with the batch.
        max_epochs: Train this many epochs. Give either this or `max_iters`.
        max_iters: Train this many iterations, with as many passes over the data as needed.
        val_interval: Validate every n epochs (default 1) or n iterations (default 1,000), and after the last one.
        val_begin: Do not validate before this epoch or iteration (default 1). 0 also validates before the first step.
        limit_batches: Use only this many batches of each pass.
        weigh: A function of a batch that returns how much it counts, such as its tokens. By default, samples count.
        skip: Batches to leave out, by the step that would get them: `[8120, "9000-9010"]`.
    """

    #: The points and the step of an iteration, if a dialect does not leave them to `hookline.engine.loops.train_iter`.
    iterate: Callable[[Any, Any, int, Any], Tensor | None] | None = None

    def __init__(
        self,
        dataloader: Iterable[Any],
        step: Callable[..., Any] | None = None,
        *,
        max_epochs: int | None = None,
        max_iters: int | None = None,
        val_interval: int | None = None,
        val_begin: int = 1,
        limit_batches: int | None = None,
        weigh: Callable[[Any], Any] | None = None,
        skip: int | str | Sequence[int | str] | None = None,
    ) -> None:
        if (max_epochs is None) == (max_iters is None):
            raise ConfigError("TrainLoop needs either max_epochs or max_iters")
        self.by_epoch = max_epochs is not None
        self.dataloader = dataloader
        self.step: Callable[..., Any] = step if step is not None else call_model
        self.updates_itself = updates_itself(self.step)
        self.weigher = Weigher(weigh, "TrainLoop")
        self.max_epochs = max_epochs
        self.max_iters = max_iters
        self.val_interval = val_interval if val_interval is not None else (1 if self.by_epoch else 1000)
        self.val_begin = val_begin
        #: The settings of validation that are not left at their defaults.
        self.set_for_validation = ["val_interval"] * (val_interval is not None) + ["val_begin"] * (val_begin != 1)
        self.limit_batches = limit_batches
        self.skip = parse_skip(skip)
        limits = {
            "max_epochs": max_epochs,
            "max_iters": max_iters,
            "val_interval": self.val_interval,
            "limit_batches": limit_batches,
        }
        for name, value in limits.items():
            if value is not None:
                check_int(name, value, least=1)
        check_int("val_begin", val_begin, least=0)
        self._planned: TrainLoop | None = None
        self._creator = TrainLoop

    @property
    def planned(self) -> TrainLoop:
        """Return this loop as it was before a dry run shortened it.

        Schedules are made for that length, and what the run never reaches is found with it.
        """
        return self if self._planned is None else self._planned

    def __repr__(self) -> str:
        batches = "an unknown number of batches" if self.length is None else count(self.length, "batch", "batches")
        length = f"{count(self.max_epochs, 'epoch')} of {batches}"
        if self.max_iters is not None:
            length = f"{count(self.max_iters, 'iteration')}, {batches} per pass"
        every = count(self.val_interval, "epoch" if self.by_epoch else "iteration")
        return f"<{type(self).__name__}: {length}, step {short_name(self.step)}, val_interval {every}>"

    @property
    def length(self) -> int | None:
        """Return the number of batches of one pass, with those that `skip` leaves out; None if it is unknown."""
        return length_of(self.dataloader, self.limit_batches)

    def length_of_pass(self, epoch: int) -> int | None:
        """Return the number of batches that a pass uses; None if it is unknown."""
        length = self.length
        return length if length is None else length - self.left_out(epoch * length, (epoch + 1) * length)

    def left_out(self, begin: int, end: int) -> int:
        """Return how many batches `skip` leaves out in a part of the data."""
        return len(self.skip.within(begin, end)) if self.skip.ranges else 0

    def updates(self, accumulate: int) -> int | None:
        """Return the number of windows of `accumulate` batches, if no hook skips one; None if it is unknown."""
        if self.max_iters is not None:
            return -(-self.max_iters // accumulate)
        # When training by epochs, the last accumulation window of each epoch may be shorter.
        length, epochs = self.length, self.max_epochs or 0
        if not length:
            return None
        shorter = {place // length for each in self.skip.ranges for place in each if place < epochs * length}
        lengths = [length] * (epochs - len(shorter)) + [self.length_of_pass(epoch) or 0 for epoch in shorter]
        return sum(-(-each // accumulate) for each in lengths)

    @property
    def total_iters(self) -> int | None:
        """Return how many iterations there will be, if that is known."""
        if not self.by_epoch:
            return self.max_iters
        places = self.places
        return None if places is None else places - self.left_out(0, places)

    @property
    def total_passes(self) -> int | None:
        """Return how many passes over the data there will be, also when training by iterations, if that is known."""
        if self.max_iters is None:
            return self.max_epochs
        return -(-self.places // self.length) if self.length and self.places is not None else None

    @property
    def places(self) -> int | None:
        """Return the number of batches up to the last one, with those that `skip` leaves out; None if it is unknown."""
        if self.max_iters is not None:
            return self.skip.place(self.max_iters - 1) + 1 if self.skip.ranges else self.max_iters
        return self.length * (self.max_epochs or 0) if self.length is not None else None

    @property
    def total_validations(self) -> int | None:
        """Return the number of validations that the loop itself makes; None if it is unknown."""
        last = self.max_epochs if self.by_epoch else self.max_iters
        if last is None:
            return None
        due = last // self.val_interval - max(self.val_begin - 1, 0) // self.val_interval
        after_last = last % self.val_interval != 0 or last < self.val_begin
        return max(due, 0) + after_last + (self.val_begin == 0)

    def shorten(self, batches: int) -> None:
        """Limit training to one epoch of at most this many batches, or to this many iterations, for a dry run."""
        self._planned = copy.copy(self.planned)
        places = self.skip.place(batches - 1) + 1
        self.limit_batches = min(self.limit_batches or places, places)
        if self.max_epochs is not None:
            self.max_epochs = 1
        else:
            self.max_iters = min(self.max_iters or batches, batches)

    def counts_epochs(self, by_epoch: bool | None, who: str) -> bool:
        """Return whether a hook counts epochs: its own `by_epoch`, or, if that is None, the unit of this loop.

        Counting epochs is refused if the run trains by iterations.
        """
        if by_epoch and not self.by_epoch:
            raise ConfigError(f"{who}: by_epoch=True needs training by epochs, but this run trains by iterations")
        return self.by_epoch if by_epoch is None else by_epoch

    def is_over(self, at: Position) -> bool:
        """Return whether training has reached `max_epochs` or `max_iters`."""
        return at.epoch >= self.max_epochs if self.max_epochs is not None else at.iter >= (self.max_iters or 0)

    def validation_due(self, at: Position) -> bool:
        """Return whether a validation must run at this position, before the next step."""
        if at.validated_at == at.iter or (self.by_epoch and at.batch):
            return False
        done = at.epoch if self.by_epoch else at.iter
        return (done >= self.val_begin and done % self.val_interval == 0) or (done > 0 and self.is_over(at))


class EvalLoop(LoopSpec):
    """A loop for validation or testing: its data, its step and its metrics.

    Args:
        dataloader: Yields the batches.
        step: A function of `(model, batch)` that returns the arguments of the metrics: `(preds, target)`. Without a
            step, the model is called with the batch.
        metrics: Name -> torchmetrics object, or a callable, which is averaged over the samples.
        loss: A training step. Its loss on this data becomes the metric `loss`.
        limit_batches: Use only this many batches.
        weigh: A function of a batch that returns how much it counts in the loss and in metrics that are averaged. By
            default, samples count.
    """

    #: False if a dialect evaluates in a way of its own, so that the metrics of one batch show nothing.
    may_be_tried = True

    def __init__(
        self,
        dataloader: Iterable[Any],
        step: Callable[..., Any] | None = None,
        *,
        metrics: Mapping[str, Any] | Any | None = None,
        loss: Callable[..., Any] | None = None,
        limit_batches: int | None = None,
        weigh: Callable[[Any], Any] | None = None,
    ) -> None:
        if limit_batches is not None:
            check_int("limit_batches", limit_batches, least=1)
        self.dataloader = dataloader
        self.step = step if step is not None else call_model
        self.only_loss = loss is not None and step is None and metrics is None
        self.metrics = Metrics(metrics)
        self.loss = loss
        self.weigher = Weigher(weigh, "EvalLoop")
        self.limit_batches = limit_batches
        #: Returns the context to evaluate in. A hook that evaluates the same data in another way adds a copy of a loop
        #: to `runner.val_loops`, with its own context.
        self.within: Callable[[], AbstractContextManager[Any]] = nullcontext
        self._planned: EvalLoop | None = None
        self._creator = EvalLoop

    @property
    def planned(self) -> EvalLoop:
        """Return this loop as it was before a dry run shortened it."""
        return self if self._planned is None else self._planned

    def __repr__(self) -> str:
        batches = "an unknown number of batches" if self.length is None else count(self.length, "batch", "batches")
        found = [*self.metrics.names, *(["loss"] if self.loss is not None else [])]
        metrics = ", ".join(map(escaped, found)) or "none"
        return f"<{type(self).__name__}: {batches}, step {short_name(self.step)}, metrics: {metrics}>"

    @property
    def needs_weights(self) -> bool:
        """Return whether something is averaged over batches: the loss, or the results of a function."""
        return self.loss is not None or self.metrics.has_functions

    def shorten(self, batches: int) -> None:
        """Use at most this many batches, for a dry run."""
        self._planned = copy.copy(self.planned)
        self.limit_batches = min(self.limit_batches or batches, batches)

    @property
    def length(self) -> int | None:
        """Return the number of batches; None if it is unknown."""
        return length_of(self.dataloader, self.limit_batches)


def eval_loops(given: EvalLoop | Mapping[str, EvalLoop] | None, what: str) -> dict[str, EvalLoop]:
    """Return the evaluation loops by name. A single loop has the empty name."""
    loops = {} if given is None else dict(given) if isinstance(given, Mapping) else {"": given}
    for loop in loops.values():
        if not isinstance(loop, EvalLoop):
            raise ConfigError(f"{what} must be an EvalLoop or a dict of them by name, not a {type(loop).__name__}")
    return loops

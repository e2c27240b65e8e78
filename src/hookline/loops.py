"""The training loop. Read this page first.

    train          before_train, then epochs or iterations, after_train
      one_pass     the batches of one pass over the data
        train_iter one step: before_, the user's function, optim.update, after_
      act          what hooks and signals asked for, where no accumulation window is open: save, stop, validate
    evaluate       validation or test over one or several data sets

Where each point stands is drawn in `hookline.points`. The counters (`runner.position`) count what is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from hookline.calls import NOTHING
from hookline.data.batches import Batches, length_of
from hookline.data.move import to_device
from hookline.errors import ConfigError
from hookline.metrics import Average, Metrics, batch_size
from hookline.steps import as_outputs, call_model, updates_itself

if TYPE_CHECKING:
    from torch import nn

    from hookline.plan import Plan
    from hookline.position import Position
    from hookline.runner import Runner


class TrainLoop:
    """How to train: the data, the step, how long, and how often to validate.

    Args:
        dataloader: Gives the batches; a length is not needed.
        step: `(model, batch)` in, loss out. With a parameter named `optim`, it makes its own updates. Without a step,
            the model is called with the batch.
        max_epochs: Train this many epochs; or
        max_iters: this many iterations, going round the data as often as needed.
        val_interval: Validate every so many epochs (1) or iterations (1,000), and after the last.
        val_begin: The first epoch or iteration to validate after (1); 0 validates before the first step.
        limit_batches: Use only so many batches of each pass.
    """

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
    ) -> None:
        if (max_epochs is None) == (max_iters is None):
            raise ConfigError("TrainLoop needs max_epochs or max_iters, one of the two")
        self.by_epoch = max_epochs is not None
        self.dataloader = dataloader
        self.step: Callable[..., Any] = step if step is not None else call_model
        self.updates_itself = updates_itself(self.step)
        self.max_epochs = max_epochs
        self.max_iters = max_iters
        self.val_interval = val_interval if val_interval is not None else (1 if self.by_epoch else 1000)
        self.val_begin = val_begin
        self.limit_batches = limit_batches
        limits = {
            "max_epochs": max_epochs,
            "max_iters": max_iters,
            "val_interval": self.val_interval,
            "limit_batches": limit_batches,
        }
        for name, value in limits.items():
            _refuse_below(name, value, 1)
        _refuse_below("val_begin", val_begin, 0)

    @property
    def length(self) -> int | None:
        """Batches of one pass, where that is known."""
        return length_of(self.dataloader, self.limit_batches)

    def is_over(self, at: Position) -> bool:
        """Whether everything that was asked for is done."""
        return at.epoch >= self.max_epochs if self.max_epochs is not None else at.iter >= (self.max_iters or 0)

    def validation_due(self, at: Position) -> bool:
        """Whether validation stands between this position and the next step."""
        if at.val_requested:
            return True
        if at.validated_at == at.iter or (self.by_epoch and at.batch):
            return False
        done = at.epoch if self.by_epoch else at.iter
        return (done >= self.val_begin and done % self.val_interval == 0) or (done > 0 and self.is_over(at))


class EvalLoop:
    """How to validate or test: the data, the step, the metrics.

    Args:
        dataloader: Gives the batches.
        step: `(model, batch)` in, what the metrics take out: `(preds, target)`. Without one, the model is called.
        metrics: Name -> torchmetrics object, or a callable that is averaged by sample.
        loss: A training step whose loss is measured on this data too, as the metric `loss`.
        limit_batches: Use only so many batches.
    """

    def __init__(
        self,
        dataloader: Iterable[Any],
        step: Callable[..., Any] | None = None,
        *,
        metrics: Mapping[str, Any] | Any | None = None,
        loss: Callable[..., Any] | None = None,
        limit_batches: int | None = None,
    ) -> None:
        _refuse_below("limit_batches", limit_batches, 1)
        self.dataloader = dataloader
        self.step = step if step is not None else call_model
        self.only_loss = loss is not None and step is None and metrics is None
        self.metrics = Metrics(metrics)
        self.loss = loss
        self.limit_batches = limit_batches

    @property
    def length(self) -> int | None:
        """Batches, where that is known."""
        return length_of(self.dataloader, self.limit_batches)


def eval_loops(given: EvalLoop | Mapping[str, EvalLoop] | None, what: str) -> dict[str, EvalLoop]:
    """Evaluation loops by name; a single one has the empty name."""
    loops = {} if given is None else dict(given) if isinstance(given, Mapping) else {"": given}
    for loop in loops.values():
        if not isinstance(loop, EvalLoop):
            raise ConfigError(f"{what} is an EvalLoop or a dict of them by name, not {loop!r}")
    return loops


def _refuse_below(name: str, value: Any, least: int) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise ConfigError(f"{name} must be an int of at least {least}, not {value!r}")


# ---------------------------------------------------------------------------------------------------- training


def train(runner: Runner) -> None:
    """All of training, from where the run stands to its end or to a stop."""
    plan, at, loop = runner.plan, runner.position, runner.train_loop
    with plan.around("train"), in_mode(runner.model, training=True):
        plan.before_train()
        if loop.by_epoch:
            by_epochs(runner)
        else:
            by_iterations(runner)
        plan.after_train()
        runner.save_if_asked()
    assert loop.is_over(at) or at.stopped


def by_epochs(runner: Runner) -> None:
    """Epoch after epoch."""
    plan, at, loop = runner.plan, runner.position, runner.train_loop
    if at.batch == 0:
        runner.restore()
        act(runner)
    while not loop.is_over(at) and not at.stopped:
        with plan.around("train_epoch"):
            plan.before_train_epoch()
            one_pass(runner)
            if at.stopped:
                break
            plan.after_train_epoch()
        at.epoch, at.batch = at.epoch + 1, 0
        act(runner)


def by_iterations(runner: Runner) -> None:
    """Pass after pass over the data until there are enough iterations; the epoch points surround them all."""
    plan, at, loop = runner.plan, runner.position, runner.train_loop
    with plan.around("train_epoch"):
        plan.before_train_epoch()
        if at.batch == 0:
            runner.restore()
            act(runner)
        while not loop.is_over(at) and not at.stopped:
            one_pass(runner)
        if not at.stopped:
            plan.after_train_epoch()


def one_pass(runner: Runner) -> None:
    """The batches that are left of this pass over the data, until the run is over or stopped."""
    at, loop = runner.position, runner.train_loop
    batches = Batches(loop.dataloader, loop.limit_batches, epoch=at.epoch, start=at.batch)
    if runner.restore():  # after the iterator was made, because making it draws a random number
        act(runner)
        if at.stopped:
            return
    for batch, last in batches:
        train_iter(runner, at.batch, batch if runner.on_cpu else to_device(batch, runner.device), last)
        at.iter += 1
        at.batch += 1
        if not loop.by_epoch:
            if last:
                at.epoch, at.batch = at.epoch + 1, 0
            act(runner)
        elif runner.asked:
            act(runner)
        if at.stopped or at.iter == loop.max_iters:
            return


def train_iter(runner: Runner, batch_idx: int, batch: Any, last: bool) -> None:
    """One iteration in its scope."""
    plan = runner.plan
    runner.begin_iteration(batch, last)
    if plan.around_train_iter:  # entering a scope that nobody surrounds would cost more than asking
        with plan.around("train_iter", batch_idx, batch):
            points_and_step(runner, plan, batch_idx, batch)
    else:
        points_and_step(runner, plan, batch_idx, batch)


def points_and_step(runner: Runner, plan: Plan, batch_idx: int, batch: Any) -> None:
    """The points of an iteration and the step between them; without the step there is no `after_train_iter`."""
    if plan.before_train_iter:
        plan.before_train_iter(batch_idx, batch)
    outputs = None if runner.skipped else step(runner, plan)
    if runner.ends_window:
        for optim in runner.optims:
            optim.flush()
    if outputs is not None and plan.after_train_iter:
        plan.after_train_iter(batch_idx, runner.data_batch, outputs)


def step(runner: Runner, plan: Plan) -> dict[str, Any]:
    """The user's function, and the update, unless the function made its own."""
    loop, batch = runner.train_loop, runner.data_batch
    if plan.around_forward or runner.autocast is not NOTHING:
        with plan.around("forward", batch), runner.autocast:
            result = runner.call_step(runner.wrapped, batch)
    else:
        result = runner.call_step(runner.wrapped, batch)
    if loop.updates_itself:
        return {} if result is None else as_outputs(result)
    outputs = {"loss": result} if result.__class__ is Tensor and result.numel() == 1 else as_outputs(result)
    runner.optims[0].update(outputs["loss"], outputs)
    outputs["loss"] = outputs["loss"].detach()  # a hook that keeps it does not keep the graph of its step
    return outputs


def act(runner: Runner) -> None:
    """Do what is due, once no accumulation window is open: save, then stop, or else validate."""
    at, loop = runner.position, runner.train_loop
    for optim in runner.optims:
        if optim.micro:
            at.val_requested = at.val_requested or (bool(runner.val_loops) and loop.validation_due(at))
            return
    if runner.asked:
        runner.save_if_asked()
        if runner.stop_if_asked():
            return
    if runner.val_loops and loop.validation_due(at):
        at.val_requested = False
        evaluate(runner, "val")
        runner.save_if_asked()
        runner.stop_if_asked()


# -------------------------------------------------------------------------------------------------- evaluation


def evaluate(runner: Runner, stage: Literal["val", "test"]) -> dict[str, Any]:
    """Validation or test: the points once, the iteration points for every batch of every data set."""
    plan, at = runner.plan, runner.position
    loops = runner.val_loops if stage == "val" else runner.test_loops
    metrics: dict[str, Any] = {}
    with plan.around(stage), in_mode(runner.model, training=False):
        plan.call(f"before_{stage}", {})
        with plan.around(f"{stage}_epoch"):
            plan.call(f"before_{stage}_epoch", {})
            for name, loop in loops.items():
                runner.eval_loop = loop
                found = evaluate_one(runner, stage, loop)
                metrics |= {f"{name}/{key}" if name else key: value for key, value in found.items()}
            plan.call(f"after_{stage}_epoch", {"metrics": metrics})
        if stage == "val":
            at.validated_at = at.iter
        plan.call(f"after_{stage}", {})
    at.validations += stage == "val"
    return metrics


def evaluate_one(runner: Runner, stage: Literal["val", "test"], loop: EvalLoop) -> dict[str, Any]:
    """All batches of one data set through the step and into the metrics."""
    plan, average = runner.plan, Average()
    before = plan.before_val_iter if stage == "val" else plan.before_test_iter
    after = plan.after_val_iter if stage == "val" else plan.after_test_iter
    loop.metrics.reset(runner.device)
    for batch_idx, (given, _) in enumerate(Batches(loop.dataloader, loop.limit_batches)):
        runner.data_batch = batch = given if runner.on_cpu else to_device(given, runner.device)
        with plan.around(f"{stage}_iter", batch_idx, batch):
            before(batch_idx, batch)
            batch = runner.data_batch
            with plan.around("forward", batch), runner.autocast:
                loss = as_outputs(loop.loss(runner.wrapped, batch))["loss"] if loop.loss is not None else None
                outputs = loss if loop.only_loss else loop.step(runner.wrapped, batch)
            if loss is not None:
                average.update(loss, batch_size(batch))
            if not loop.only_loss:
                loop.metrics.update(outputs, batch)
            after(batch_idx, batch, outputs)
    found = {} if loop.loss is None else {"loss": average.compute()}
    return loop.metrics.compute() | found


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Training with gradients, or evaluation without; afterwards every module is in the mode it was in.

    A model that is in training mode keeps the modes of its parts: some may be frozen on purpose.
    """
    was = [(module, module.training) for module in model.modules()]
    if model.training != training:
        model.train(training)
    try:
        with torch.set_grad_enabled(training):
            yield
    finally:
        for module, mode in was:
            module.training = mode

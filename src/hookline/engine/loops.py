"""The training loop. Read this page first.

    train              before_train, then passes over the data, after_train
      one_pass         the batches of one pass over the data
        train_iter     one step: before_, the user's function, optim.update, after_
      handle_requests  requests of hooks and signals, where no accumulation window is open: stop, save, validate
    evaluate           validation or test over one or several data sets

`hookline.plan.points` draws where each point is called. The counters (`runner.position`) count what is finished.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from torch import Tensor

from hookline.data.batches import Batches
from hookline.data.transfer import to_device
from hookline.engine.metrics import Average
from hookline.engine.steps import as_outputs, own_outputs
from hookline.plan.calls import blame_step
from hookline.plan.scopes import NOTHING
from hookline.run import orders, signals
from hookline.run.position import CurrentWeight

if TYPE_CHECKING:
    from torch import nn

    from hookline.engine.evaluation import Evaluation
    from hookline.engine.loop_specs import EvalLoop
    from hookline.engine.training import Training
    from hookline.plan.plan import Plan
    from hookline.state.host import Host


# ---------------------------------------------------------------------------------------------------- training


def train(training: Training) -> None:
    """Train from the current position to the end, or to a stop."""
    with around_train(training):
        while training.continues:
            with around_pass(training):
                one_pass(training)
    assert training.loop.is_over(training.position) or training.requests.stopped


@contextmanager
def around_train(training: Training) -> Iterator[None]:
    """Surround all passes with the points of a training. By iterations, they have one epoch around them."""
    plan, host = training.plan, training.host
    with plan.around("train"), training.in_mode():
        plan.before_train()
        with NOTHING if training.loop.by_epoch else around_epoch(training):
            training.resume_between_passes()
            yield
        training.check_result()
        host.strategy.settle()
        plan.after_train()
        training.save_at_end()


@contextmanager
def around_pass(training: Training) -> Iterator[None]:
    """Surround a pass over the data. By epochs, it is an epoch: it has points, and is counted unless it was stopped."""
    if not training.loop.by_epoch:
        yield
        return
    with around_epoch(training):
        yield
    if not training.requests.stopped:
        training.end_epoch()


@contextmanager
def around_epoch(training: Training) -> Iterator[None]:
    """Call the points of an epoch. An epoch that was stopped has no `after_train_epoch`."""
    with training.plan.around("train_epoch"):
        training.plan.before_train_epoch()
        yield
        if not training.requests.stopped:
            training.strategy.settle()
            training.plan.after_train_epoch()


def one_pass(training: Training) -> None:
    """Train on the rest of this pass over the data, until the run is over or stopped."""
    plan, position = training.plan, training.position
    iterate = training.loop.iterate or train_iter
    begin, end = training.begin_iteration, training.end_iteration
    for batch, last in training.begin_pass():
        batch = begin(batch, last)
        if plan.around_train_iter:  # testing is cheaper than entering an empty scope
            with plan.around("train_iter", position.batch, batch):
                loss = iterate(training, plan, position.batch, batch)
        else:
            loss = iterate(training, plan, position.batch, batch)
        if end(loss):
            return
    training.end_pass()


def train_iter(training: Training, plan: Plan, batch_idx: int, batch: Any) -> Tensor | None:
    """Call the points of an iteration, and the step between them. Return the loss of a step that was not skipped.

    A skipped step has no `after_train_iter`.
    """
    requests, call = training.requests, plan.before_train_iter
    if call:
        call(batch_idx, batch)
        batch = training.current.batch  # a hook may have replaced it
    if plan.may_skip_early:
        training.agree_on_skip()
        training.optims.take_joined()
    try:
        outputs = None if requests.skip else step(training, plan, batch)
        if training.ends_window or requests.flush_window:
            training.flush_windows()
    except Exception as error:
        training.refuse_resumed_optimizer(error)
        blame_step(error, plan.host)
        raise
    if outputs is None:
        return None
    loss, call = outputs.get("loss"), plan.after_train_iter
    if call:
        if loss is not None:
            outputs["loss"] = loss = loss.detach()  # so that a hook that keeps it does not keep the graph
        call(batch_idx, batch, outputs)
    return None if requests.skip else loss


def step(training: Training, plan: Plan, batch: Any) -> dict[str, Any]:
    """Call the user's function, and update the weights, unless the function does this itself."""
    if plan.around_train_forward or training.wraps_forward:
        with plan.around_forward_of_training(batch), training.compute.autocast(), training.syncing_forward():
            result = training.call_step(training.wrapped, batch)
        if plan.may_leave_gradients:
            training.optims.take_joined()
    else:
        result = training.call_step(training.wrapped, batch)
    update = training.update
    if update is None:
        return own_outputs(result)
    outputs = {"loss": result} if result.__class__ is Tensor and result.numel() == 1 else as_outputs(result)
    update(outputs["loss"], outputs)
    return outputs


def handle_requests(host: Host) -> None:
    """Handle the requests of hooks, signals and threads: stop, save, end after a signal, validate, in this order.

    Nothing happens while an accumulation window is open, so a saved state is never half a step. A stop takes effect
    before the save, so that the checkpoint contains it. Several processes agree here on the requests.
    """
    requests = host.requests
    if requests.skip:
        clear_skip(host)
    if host.windows.accumulating:
        host.evaluation.remember()
        host.saving.save_in_window()
        return
    if requests.orders:
        orders.take_orders(requests, host.journal.note, host.evaluation.possible)
    host.strategy.agree(requests, now=host.position.batch == 0)
    if requests.pending:
        stop_and_save(host)
    if not requests.stopped and host.evaluation.run_if_due():
        orders.answer(requests, host.journal.note, "validate")
        if requests.skip:  # a skip applies only to the iteration in which it was requested
            clear_skip(host)
        host.strategy.agree(requests, now=True)
        stop_and_save(host)


def clear_skip(host: Host) -> None:
    """Clear a skip at the end of its iteration."""
    host.requests.skip = ""
    host.windows.clear_skip()


def stop_and_save(host: Host) -> None:
    """Put a due stop into effect, write the requested checkpoints, and end the run after a signal."""
    requests = host.requests
    stop = requests.apply_stop_if_due(at_epoch_end=host.position.batch == 0, parameters_of=host.plan.parameters_of)
    if stop:
        host.terminal.say(f"stopped{f' by {stop.by}' if stop.by else ''}: {stop.reason}")
        host.journal.note("stop", reason=stop.reason, by=stop.by)
        orders.answer(requests, host.journal.note, "stop_after_step", "stop_after_epoch")
    requests.settle()
    if requests.saves:
        writes = requests.files_wanted
        host.saving.save()
        if writes:  # a signal may have come during the save, to one of the processes that wait
            host.strategy.agree(requests, now=True)
    end_if_signaled(host)


def end_if_signaled(host: Host) -> None:
    """After a signal, save the current state and end the run. Without one, raise the error of a background save.

    The signal may also have ended the workers of the loader. Then an accumulation window is saved as it is, open.
    """
    requests = host.requests
    if requests.failure or requests.signal:
        requests.failure = False
        host.saving.finish_before_another()
    if not requests.signal:
        return
    _end(host, host.saving.save_before_end())


def end_without_state(host: Host, why: str) -> NoReturn:
    """End the run after a signal in a validation whose state before it is not known, with the newest checkpoint."""
    host.saving.finish()
    at, newest = host.strategy.on_main(lambda: (host.saving.saved_at, host.saving.last_path))
    where = "no checkpoint was written yet" if newest is None else f"{host.hints.unit} {at} is saved in {newest}"
    _end(host, f"the validation took too long, and the state before it is not saved{why}; {where}")


def _end(host: Host, where: str) -> NoReturn:
    number, rank = host.requests.signal, host.requests.signaled_rank
    to, name = "" if rank is None else f" to rank {rank}", signal.Signals(number).name
    host.journal.note("signal", name=name, rank=rank)
    host.terminal.say(f"ended by {name}{to} after {host.hints.unit} {host.position.iter}: {where}")
    raise signals.ending(number, reported=True)


# -------------------------------------------------------------------------------------------------- evaluation


def evaluate(evaluation: Evaluation, stage: Literal["val", "test"]) -> dict[str, Any]:
    """Validate or test. The iteration points are called for every batch of every data set, the others once."""
    host = evaluation.host
    plan, position, strategy = host.plan, host.position, host.strategy
    metrics: dict[str, Any] = {}
    of_training, evaluation.current.weight = evaluation.current.weight, CurrentWeight()
    with plan.around(stage), evaluation.in_mode():
        plan.call(f"before_{stage}", {})
        with plan.around(f"{stage}_epoch"):
            plan.call(f"before_{stage}_epoch", {})
            for name, loop in evaluation.loops[stage].items():
                wrapped = evaluation.compute.wrapped
                with evaluation.of_loop(loop), loop.within(), strategy.evaluating(wrapped) as model:
                    found = evaluate_one(evaluation, model, stage, loop)
                metrics |= {f"{name}/{key}" if name else key: value for key, value in found.items()}
            if not strategy.acts_alone:
                evaluation.compare_metrics(stage, metrics)
            plan.call(f"after_{stage}_epoch", {"metrics": metrics})
        if stage == "val":
            position.validated_at = position.iter
        plan.call(f"after_{stage}", {})
    evaluation.current.weight = of_training
    position.validations += stage == "val"
    return metrics


def evaluate_one(
    evaluation: Evaluation, model: nn.Module, stage: Literal["val", "test"], loop: EvalLoop
) -> dict[str, Any]:
    """Evaluate all batches of one data set, and return its metrics."""
    compute, plan, strategy, current = (
        evaluation.compute,
        evaluation.host.plan,
        evaluation.host.strategy,
        evaluation.current,
    )
    evaluation.leave_if_signaled()
    loop.metrics.reset(compute.device)
    batches = Batches(loop.dataloader, loop.limit_batches, seed=evaluation.seed, may_be_empty=not strategy.acts_alone)
    losses, weigh = None if loop.loss is None else Average(), loop.weigher if loop.needs_weights else None
    around, before, after = f"around_{stage}_iter", f"before_{stage}_iter", f"after_{stage}_iter"
    for batch_idx, (given, _) in enumerate(batches):
        current.batch = batch = given if compute.on_cpu else to_device(given, compute.device)
        with plan.around(f"{stage}_iter", batch_idx, batch) if getattr(plan, around) else NOTHING:
            if call := getattr(plan, before):
                call(batch_idx, batch)
                batch = current.batch  # a hook may have replaced it
            try:
                loss, outputs = forward(evaluation, loop, model, batch)
                weight = 1.0 if weigh is None else weigh(batches, batch_idx, batch, outputs)
                if losses is not None:
                    losses.update(loss, weight)
                if not loop.only_loss:
                    loop.metrics.update(outputs, batch, weight)
            except Exception as error:
                blame_step(error, plan.host, f"the step of {stage}, batch {batch_idx}")
                raise
            if call := getattr(plan, after):
                call(batch_idx, batch, outputs)
        evaluation.leave_if_signaled()
    evaluation.leave_with_others()
    return loop.metrics.compute(strategy.reduce_sum, losses)


def forward(evaluation: Evaluation, loop: EvalLoop, model: nn.Module, batch: Any) -> tuple[Tensor | None, Any]:
    """Return the loss of a batch, if the loop has one, and what its metrics take."""
    plan, compute = evaluation.host.plan, evaluation.compute
    if plan.around_forward or compute.precision != "fp32":
        with plan.around("forward", batch), compute.autocast():
            return outputs_of(loop, model, batch)
    return outputs_of(loop, model, batch)


def outputs_of(loop: EvalLoop, model: nn.Module, batch: Any) -> tuple[Tensor | None, Any]:
    """Call the functions of the user for a batch."""
    if loop.loss is None:
        return None, loop.step(model, batch)
    loss = as_outputs(loop.loss(model, batch))["loss"]
    return loss, loss if loop.only_loss else loop.step(model, batch)

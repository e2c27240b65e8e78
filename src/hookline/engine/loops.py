"""The training loop. Read this page first.

    train              before_train, then epochs or iterations, after_train
      one_pass         the batches of one pass over the data
        train_iter     one step: before_, the user's function, optim.update, after_
      handle_requests  requests of hooks and signals, where no accumulation window is open: stop, save, validate
    evaluate           validation or test over one or several data sets

`hookline.plan.points` draws where each point is called. The counters (`runner.position`) count what is finished.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from hookline.data.batches import Batches, batch_size
from hookline.data.transfer import to_device
from hookline.engine import outside
from hookline.engine.comparison import compare_metrics
from hookline.engine.metrics import Average, mean_of
from hookline.engine.numerics import check_result, keep_loss
from hookline.engine.optim_checks import refuse_resumed_optimizer
from hookline.engine.steps import as_outputs, own_outputs
from hookline.plan.calls import blame_step

if TYPE_CHECKING:
    from torch import nn

    from hookline.engine.host import Host
    from hookline.engine.loop_specs import EvalLoop
    from hookline.engine.runner_host import RunnerHost
    from hookline.plan.plan import Plan


# ---------------------------------------------------------------------------------------------------- training


def train(runner: RunnerHost) -> None:
    """Train from the current position to the end, or to a stop."""
    plan, position, loop = runner.plan, runner.position, runner.train_loop
    with plan.around("train"), runner.in_mode(training=True):
        plan.before_train()
        if loop.by_epoch:
            by_epochs(runner)
        else:
            by_iterations(runner)
        check_result(runner)
        runner.strategy.settle()
        plan.after_train()
        runner.strategy.agree(runner.requests, now=True)
        if runner.requests.saves:
            runner.saving.save()
        runner.saving.finish()
    assert loop.is_over(position) or runner.requests.stopped


def by_epochs(runner: RunnerHost) -> None:
    """Train epoch after epoch."""
    plan, position, loop, requests = runner.plan, runner.position, runner.train_loop, runner.requests
    resume_between_passes(runner)
    while not loop.is_over(position) and not requests.stopped:
        with plan.around("train_epoch"):
            plan.before_train_epoch()
            one_pass(runner)
            if requests.stopped:
                break
            runner.strategy.settle()
            plan.after_train_epoch()
        position.epoch, position.batch = position.epoch + 1, 0
        handle_requests(runner)


def by_iterations(runner: RunnerHost) -> None:
    """Repeat passes over the data until there are enough iterations. The epoch points surround all passes."""
    plan, position, loop, requests = runner.plan, runner.position, runner.train_loop, runner.requests
    with plan.around("train_epoch"):
        plan.before_train_epoch()
        resume_between_passes(runner)
        while not loop.is_over(position) and not requests.stopped:
            one_pass(runner)
        if not requests.stopped:
            runner.strategy.settle()
            plan.after_train_epoch()


def resume_between_passes(runner: RunnerHost) -> None:
    """Restore the late states of a resumed run, and run a missed validation, unless the run is inside a pass.

    Inside a pass, `one_pass` does this, after the iterator of the loader was created.
    """
    position = runner.position
    if position.batch == 0 or runner.train_loop.is_over(position) or runner.requests.stopped:
        runner.saving.restore()
        handle_requests(runner)


def one_pass(runner: RunnerHost) -> None:
    """Train on the rest of this pass over the data, until the run is over or stopped."""
    position, loop, requests = runner.position, runner.train_loop, runner.requests
    batches = runner.open_batches()
    if runner.saving.restore():  # after the iterator was created, because that draws a random number
        handle_requests(runner)
        if requests.stopped:
            return
    plan, by_epoch, needs_transfer = runner.plan, loop.by_epoch, not runner.on_cpu
    ledger = plan.ledger
    iterate = train_iter if loop.iterate is None else loop.iterate
    runner.drop_stale_gradients()
    runner.weigh_evenly()
    for batch, last in batches:
        if needs_transfer:
            batch = to_device(batch, runner.device)
        runner.data_batch = batch
        runner.ends_epoch = last
        runner.ends_window = last if by_epoch else position.iter + 1 == loop.max_iters
        if last:
            runner.weigh_last_batch(batch)
        if requests.skip:  # a skip holds for the iteration that it was asked in, and for none outside of one
            runner.clear_skip()
        if plan.may_leave_gradients:
            runner.drop_stale_gradients()
        if plan.around_train_iter:  # testing is cheaper than entering an empty scope
            with plan.around("train_iter", position.batch, batch):
                iterate(runner, plan, position.batch, batch)
        else:
            iterate(runner, plan, position.batch, batch)
        position.iter += 1
        position.batch += 1
        if last and not by_epoch:
            position.epoch, position.batch = position.epoch + 1, 0
        if position.iter >= ledger.next_turn:  # one of 31 iterations is measured
            ledger.turn()
        if requests.pending or not by_epoch:
            handle_requests(runner)
            if requests.stopped:
                return
        if position.iter == loop.max_iters:
            return
    if not by_epoch and position.batch:  # the stream is now shorter than when the run was saved
        position.epoch, position.batch = position.epoch + 1, 0


def train_iter(runner: RunnerHost, plan: Plan, batch_idx: int, batch: Any) -> None:
    """Call the points of an iteration, and the step between them. A skipped step has no `after_train_iter`."""
    requests, call = runner.requests, plan.before_train_iter
    if call:
        call(batch_idx, batch)
    if plan.may_skip_early:
        runner.agree_on_skip()
    try:
        outputs = None if requests.skip else step(runner, plan)
        if requests.flush_window:
            runner.ends_window = True
        if runner.ends_window:
            runner.optims.flush()
    except Exception as error:
        refuse_resumed_optimizer(error, runner)
        blame_step(error, runner)
        raise
    if outputs is None:
        return
    loss, call = outputs.get("loss"), plan.after_train_iter
    if call:
        if loss is not None:
            outputs["loss"] = loss = loss.detach()  # so that a hook that keeps it does not keep the graph
        call(batch_idx, runner.data_batch, outputs)
    if loss is not None and not requests.skip:
        keep_loss(runner, loss)


def step(runner: RunnerHost, plan: Plan) -> dict[str, Any]:
    """Call the user's function, and update the weights, unless the function does this itself."""
    batch = runner.data_batch
    if plan.around_forward or runner.wraps_forward:
        with plan.around("forward", batch), runner.autocast(), runner.syncing_forward():
            result = runner.call_step(runner.wrapped, batch)
    else:
        result = runner.call_step(runner.wrapped, batch)
    update = runner.update
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
        host.clear_skip()
    if host.accumulating:
        host.while_accumulating()
        return
    if requests.orders:
        outside.take_orders(host)
    host.strategy.agree(requests, now=host.position.batch == 0)
    if requests.pending:
        stop_and_save(host)
    if not requests.stopped and host.validate_if_due():
        host.strategy.agree(requests, now=True)
        stop_and_save(host)


def stop_and_save(host: Host) -> None:
    """Put a due stop into effect, write the requested checkpoints, and end the run after a signal."""
    requests = host.requests
    stop = requests.apply_stop_if_due(at_epoch_end=host.position.batch == 0, parameters_of=host.plan.parameters_of)
    if stop:
        host.terminal.say(f"stopped{f' by {stop.by}' if stop.by else ''}: {stop.reason}")
        host.journal.note("stop", reason=stop.reason, by=stop.by)
        outside.answer(host, "stop_after_step", "stop_after_epoch")
    requests.settle()
    if requests.saves:
        writes = requests.files_wanted
        host.saving.save()
        if writes:  # a signal may have come meanwhile, to one of the processes that wait
            host.strategy.agree(requests, now=True)
    host.saving.end_if_signaled()


# -------------------------------------------------------------------------------------------------- evaluation


def evaluate(runner: RunnerHost, stage: Literal["val", "test"]) -> dict[str, Any]:
    """Validate or test. The iteration points are called for every batch of every data set, the others once."""
    plan, position = runner.plan, runner.position
    loops = runner.val_loops if stage == "val" else runner.test_loops
    metrics: dict[str, Any] = {}
    with plan.around(stage), runner.in_mode(training=False):
        plan.call(f"before_{stage}", {})
        with plan.around(f"{stage}_epoch"):
            plan.call(f"before_{stage}_epoch", {})
            for name, loop in loops.items():
                runner.eval_loop = loop
                with loop.within(), runner.strategy.evaluating(runner.wrapped) as model:
                    found = evaluate_one(runner, model, stage, loop)
                metrics |= {f"{name}/{key}" if name else key: value for key, value in found.items()}
            if not runner.strategy.acts_alone:
                compare_metrics(runner.strategy, stage, metrics)
            plan.call(f"after_{stage}_epoch", {"metrics": metrics})
        if stage == "val":
            position.validated_at = position.iter
        plan.call(f"after_{stage}", {})
    position.validations += stage == "val"
    return metrics


def evaluate_one(runner: RunnerHost, model: nn.Module, stage: Literal["val", "test"], loop: EvalLoop) -> dict[str, Any]:
    """Evaluate all batches of one data set, and return its metrics."""
    plan, average, strategy = runner.plan, Average(), runner.strategy
    runner.leave_if_signaled()
    loop.metrics.reset(runner.device)
    batches = Batches(loop.dataloader, loop.limit_batches, seed=runner.seed, may_be_empty=not strategy.acts_alone)
    for batch_idx, (given, _) in enumerate(batches):
        runner.data_batch = batch = given if runner.on_cpu else to_device(given, runner.device)
        with plan.around(f"{stage}_iter", batch_idx, batch):
            (plan.before_val_iter if stage == "val" else plan.before_test_iter)(batch_idx, batch)
            batch = runner.data_batch
            try:
                with plan.around("forward", batch), runner.autocast():
                    loss = as_outputs(loop.loss(model, batch))["loss"] if loop.loss is not None else None
                    outputs = loss if loop.only_loss else loop.step(model, batch)
                if loss is not None:
                    average.update(loss, batch_size(batch))
                if not loop.only_loss:
                    loop.metrics.update(outputs, batch)
            except Exception as error:
                blame_step(error, runner, f"the step of {stage}, batch {batch_idx}")
                raise
            (plan.after_val_iter if stage == "val" else plan.after_test_iter)(batch_idx, batch, outputs)
        runner.leave_if_signaled()
    runner.leave_with_others()
    found = {} if loop.loss is None else {"loss": mean_of(strategy.reduce_sum(average.sums()))}
    return loop.metrics.compute(strategy.reduce_sum) | found

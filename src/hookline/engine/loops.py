"""The training loop. Read this page first.

    train          before_train, then epochs or iterations, after_train
      one_pass     the batches of one pass over the data
        train_iter one step: before_, the user's function, optim.update, after_
      act          what hooks and signals asked for, where no accumulation window is open: save, stop, validate
    evaluate       validation or test over one or several data sets

Where each point stands is drawn in `hookline.plan.points`. The counters (`runner.position`) count what is finished.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from hookline.common.modes import in_mode
from hookline.data.batches import Batches
from hookline.data.transfer import to_device
from hookline.engine.metrics import Average, batch_size
from hookline.engine.steps import as_outputs, own_outputs
from hookline.plan.calls import blame_step

if TYPE_CHECKING:
    from hookline.engine.loop_specs import EvalLoop
    from hookline.engine.runner import Runner
    from hookline.plan.plan import Plan


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
        runner.saving.finish()
    assert loop.is_over(at) or at.stopped


def by_epochs(runner: Runner) -> None:
    """Epoch after epoch."""
    plan, at, loop = runner.plan, runner.position, runner.train_loop
    take_up(runner)
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
        take_up(runner)
        while not loop.is_over(at) and not at.stopped:
            one_pass(runner)
        if not at.stopped:
            plan.after_train_epoch()


def take_up(runner: Runner) -> None:
    """Between two passes, or when nothing is left to do: the states of a resumed run, and a validation that it owes.

    In the middle of a pass, `one_pass` does it, after the loader's iterator was made.
    """
    at = runner.position
    if at.batch == 0 or runner.train_loop.is_over(at) or at.stopped:
        runner.restore()
        act(runner)


def one_pass(runner: Runner) -> None:
    """The batches that are left of this pass over the data, until the run is over or stopped."""
    at, loop = runner.position, runner.train_loop
    resuming, state = runner.saving.take_loader_state()
    batches = runner.batches = Batches(
        loop.dataloader,
        loop.limit_batches,
        at.epoch,
        at.batch,
        runner.seed,
        state,
        resuming,
        on_failure=runner.end_if_signalled,
        waiting=runner.waiting,
    )
    if runner.restore():  # after the iterator was made, because making it draws a random number
        act(runner)
        if at.stopped:
            return
    plan, by_epoch, elsewhere = runner.plan, loop.by_epoch, not runner.on_cpu
    for batch, last in batches:
        if elsewhere:
            batch = to_device(batch, runner.device)
        runner.data_batch = batch
        runner.ends_epoch = last
        runner.ends_window = last if by_epoch else at.iter + 1 == loop.max_iters
        if runner.skipped:
            runner.forget_skip()
        if plan.around_train_iter:  # entering a scope that nobody surrounds would cost more than asking
            with plan.around("train_iter", at.batch, batch):
                train_iter(runner, plan, at.batch, batch)
        else:
            train_iter(runner, plan, at.batch, batch)
        at.iter += 1
        at.batch += 1
        if not by_epoch:
            if last:
                at.epoch, at.batch = at.epoch + 1, 0
            act(runner)
        elif runner.asked:
            act(runner)
        if at.stopped or at.iter == loop.max_iters:
            return
    if not by_epoch and at.batch:  # a stream that has become shorter than it was when the run was saved
        at.epoch, at.batch = at.epoch + 1, 0


def train_iter(runner: Runner, plan: Plan, batch_idx: int, batch: Any) -> None:
    """The points of an iteration and the step between them; without the step there is no `after_train_iter`."""
    if plan.before_train_iter:
        plan.before_train_iter(batch_idx, batch)
    try:
        outputs = None if runner.skipped else step(runner, plan)
        if runner.ends_window:
            for optim in runner.optims:
                optim.flush()
    except Exception as error:
        blame_step(error, runner)
        raise
    if outputs is not None and plan.after_train_iter:
        if "loss" in outputs:
            outputs["loss"] = outputs["loss"].detach()  # a hook that keeps it does not keep the graph of its step
        plan.after_train_iter(batch_idx, runner.data_batch, outputs)


def step(runner: Runner, plan: Plan) -> dict[str, Any]:
    """The user's function, and the update, unless the function made its own."""
    loop, batch = runner.train_loop, runner.data_batch
    if plan.around_forward or runner.precision != "fp32":
        with plan.around("forward", batch), runner.autocast():
            result = runner.call_step(runner.wrapped, batch)
    else:
        result = runner.call_step(runner.wrapped, batch)
    if loop.updates_itself:
        return own_outputs(result)
    outputs = {"loss": result} if result.__class__ is Tensor and result.numel() == 1 else as_outputs(result)
    runner.optims[0].update(outputs["loss"], outputs)
    return outputs


def act(runner: Runner) -> None:
    """Do what is due, once no accumulation window is open: stop, save, or else validate.

    A stop is settled before the save, so that a checkpoint knows of it.
    """
    at, loop = runner.position, runner.train_loop
    if runner.in_window:
        at.val_requested = at.val_requested or (bool(runner.val_loops) and loop.validation_due(at))
        return
    if runner.asked:
        runner.stop_if_asked()
        runner.save_if_asked()
        runner.end_if_signalled()
    if at.stopped:
        return
    if runner.val_loops and loop.validation_due(at):
        at.val_requested = False
        evaluate(runner, "val")
        runner.stop_if_asked()
        runner.save_if_asked()
        runner.end_if_signalled()


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
                with loop.within():
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
    loop.metrics.reset(runner.device)
    for batch_idx, (given, _) in enumerate(Batches(loop.dataloader, loop.limit_batches, seed=runner.seed)):
        if runner.signalled and runner.saving.saved_at == runner.iter:  # else it is saved after this validation
            runner.end_if_signalled()
        runner.data_batch = batch = given if runner.on_cpu else to_device(given, runner.device)
        with plan.around(f"{stage}_iter", batch_idx, batch):
            (plan.before_val_iter if stage == "val" else plan.before_test_iter)(batch_idx, batch)
            batch = runner.data_batch
            try:
                with plan.around("forward", batch), runner.autocast():
                    loss = as_outputs(loop.loss(runner.wrapped, batch))["loss"] if loop.loss is not None else None
                    outputs = loss if loop.only_loss else loop.step(runner.wrapped, batch)
                if loss is not None:
                    average.update(loss, batch_size(batch))
                if not loop.only_loss:
                    loop.metrics.update(outputs, batch)
            except Exception as error:
                blame_step(error, runner, f"the step of {stage}, batch {batch_idx}")
                raise
            (plan.after_val_iter if stage == "val" else plan.after_test_iter)(batch_idx, batch, outputs)
    found = {} if loop.loss is None else {"loss": average.compute()}
    return loop.metrics.compute() | found

"""Loops of a project, with their own `run`, `run_epoch` or `run_iter`, in a run of hookline.

run_iter             hookline's loop calls it for every batch; saves and resumes are exact at every iteration
run_epoch, run       the project's code is the loop; requests are handled where it counts an epoch (`_epoch += 1`) or,
                     if training goes by iterations, where it counts an iteration (`_iter += 1`)
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor

from hookline.dialects.mmengine.errors import ConfigValueError
from hookline.engine.numerics import check_result

if TYPE_CHECKING:
    from hookline.dialects.mmengine.runner.counters import Counters
    from hookline.dialects.mmengine.runner.driving import MMHost
    from hookline.dialects.mmengine.runner.runner import Runner
    from hookline.engine.training import Training
    from hookline.plan.plan import Plan

log = logging.getLogger("hookline")


def report(loop: Any) -> None:
    """Report which methods of a loop are the project's own, and where a checkpoint of it can be resumed exactly."""
    own = loop.overridden()
    if not own:
        return
    who, methods = type(loop).__name__, ", ".join(own[:-1]) + " and " * (len(own) > 1) + own[-1]
    if not hasattr(loop, "by_epoch"):
        log.info("%s evaluates with its own %s; hooks around single iterations are not called", who, methods)
    elif own == ["run_iter"]:
        log.info("%s trains with its own run_iter; saves and resumes are exact at every iteration", who)
    else:
        unit = "epochs" if loop.by_epoch else "iterations"
        log.info("%s trains with its own %s; saves, stops and resumes are exact between %s only", who, methods, unit)


def warn_of_own_data(loop: Any) -> None:
    """Warn once that a loop by iterations reads its own data, so that its position in the data is unknown."""
    log.warning(
        "%s reads its data itself: a resumed run starts a new pass over the data; to resume exactly, read "
        "next(self.dataloader_iterator)",
        type(loop).__name__,
    )
    loop._begun_at = None


def refuse_other_counts(loop: Any, resumed: bool) -> None:
    """Refuse to resume a loop that counts in its own attributes, which a checkpoint does not have."""
    position = loop.runner.position
    if resumed and (loop.iter, loop.epoch if loop.by_epoch else position.epoch) != (position.iter, position.epoch):
        raise ConfigValueError(
            f"{type(loop).__name__} cannot be resumed: the checkpoint is at epoch {position.epoch} and iteration "
            f"{position.iter}, but the loop starts at {loop.epoch} and {loop.iter}; count with self._epoch and "
            "self._iter"
        )


def run_iter(training: Training, plan: Plan, batch_idx: int, batch: Any) -> Tensor | None:
    """Call the project's `run_iter` for a batch, in hookline's loop."""
    runner, loop = cast("MMHost", training.host).runner, cast("Any", training.loop)
    position = training.position
    before = position.iter
    runner.outputs_of_hooks = None
    if loop.by_epoch:
        loop.run_iter(batch_idx, runner.data_batch)
    else:
        loop.run_iter(runner.data_batch)
    if position.iter not in (before, before + 1):
        raise ConfigValueError(
            f"{type(loop).__name__}.run_iter changed the number of iterations from {before} to {position.iter}; it "
            "must count one (self._iter += 1)"
        )
    position.iter = before  # hookline's loop counts it
    if training.ends_window or training.requests.flush_window:
        training.flush_windows()
    loss = runner.outputs_of_hooks.get("loss") if isinstance(runner.outputs_of_hooks, Mapping) else None
    return loss.detach() if isinstance(loss, Tensor) and not training.requests.skip else None


def train(training: Training, loop: Counters) -> None:
    """Let the project's loop train, with the states, requests and files of the run around it."""
    plan = training.plan
    with plan.around("train"), training.in_mode():
        with plan.around("train_epoch") if not loop.by_epoch else torch.enable_grad():
            training.resume_between_passes()
            refuse_other_counts(loop, resumed=training.position.iter > 0)
            loop.begin_own()
            try:
                loop.run()
                loop.follow()
            finally:
                loop.end_own()
        check_result(training)
        training.strategy.settle()
        training.save_at_end()


def evaluate(runner: Runner, loop: Any, stage: Literal["val", "test"]) -> dict[str, Any]:
    """Let the project's loop validate or test, and return its metrics, even if it only passes them to hooks."""
    plan, position = runner.plan, runner.position
    runner._host.evaluation.running, runner.metrics_of_hooks = loop, {}
    loop.metrics.reset(runner.device)
    loop.own_run = True
    try:
        with plan.around(stage), plan.around(f"{stage}_epoch"), torch.no_grad(), loop.within():
            found = loop.run()
    finally:
        loop.own_run = False
    if stage == "val":
        position.validated_at = position.iter
        position.validations += 1
    return dict(found) if isinstance(found, Mapping) else dict(runner.metrics_of_hooks)

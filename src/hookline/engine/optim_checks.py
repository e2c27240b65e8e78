"""Checks of the optims before the first step: parameters, closures, and the lengths of schedules."""

from __future__ import annotations

import inspect
import logging
from traceback import walk_tb
from typing import TYPE_CHECKING

from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

from hookline.engine.host import CustomPart
from hookline.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from hookline.engine.loop_specs import TrainLoop
    from hookline.engine.optim import Optim, Scheduled
    from hookline.engine.runner_host import RunnerHost

log = logging.getLogger("hookline")


def check_optims(runner: RunnerHost) -> None:
    """Refuse an optim that cannot train this model, or cannot train to the end."""
    for name, optim in runner.optims.items():
        kind = type(optim.optimizer).__name__
        who = f"the optimizer of optim '{name}' ({kind})" if name else f"the optimizer ({kind})"
        if not runner.train_loop.updates_itself:
            refuse_closure(optim.optimizer, who)
        check_parameters(runner, optim, who)
        for scheduled in optim.schedulers:
            refuse_short_schedule(runner, optim, scheduled)


def refuse_closure(optimizer: Optimizer, who: str) -> None:
    """Refuse an optimizer such as LBFGS, whose step evaluates the model again."""
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ConfigError(
            f"{who} needs a closure that evaluates the model again, which the loop does not provide. Use another "
            "optimizer, or write a step with a parameter named optim that calls optim.optimizer.step(closure)"
        )


def check_parameters(runner: RunnerHost, optim: Optim, who: str) -> None:
    """Refuse an optimizer that updates nothing of the model. Report one that also updates something else."""
    modules = [runner.model, *(part.part for part in runner.parts.values() if isinstance(part, CustomPart))]
    known = {id(each) for module in modules if isinstance(module, nn.Module) for each in module.parameters()}
    updated = optim.parameters()
    outside = [parameter for parameter in updated if id(parameter) not in known]
    if updated and len(outside) == len(updated):
        raise ConfigError(
            f"{who} updates none of the model's parameters, so the model would not be trained. Create the optimizer "
            "with the parameters of the model that the Runner gets; to train a second model, put both into one module, "
            "or add it with runner.add_part"
        )
    if outside:
        log.warning(
            "%s updates %d parameters that are not in the model, so checkpoints do not contain them. Put them into the "
            "model, or add their module with runner.add_part.",
            who,
            len(outside),
        )


def refuse_resumed_optimizer(error: Exception, runner: RunnerHost) -> None:
    """Turn an error of an optimizer's first step after a resume into one that names the checkpoint.

    Each optimizer has its own rules for its state, and torch does not check them when a state is loaded.
    """
    resumed_at = runner.saving.resumed_at
    if resumed_at < 0 or runner.iter - resumed_at >= max(optim.accumulate for optim in runner.optims.values()):
        return
    optimizers = [optim.optimizer for optim in runner.optims.values()]
    for frame, _ in walk_tb(error.__traceback__):
        if any(frame.f_locals.get("self") is each for each in optimizers):
            kind = type(frame.f_locals["self"]).__name__
            raise StorageError(
                f"{runner.saving.source} cannot be used: {kind} cannot continue from the state in it: "
                f"{type(error).__name__}: {error}"
            ) from error


def refuse_short_schedule(runner: RunnerHost, optim: Optim, scheduled: Scheduled) -> None:
    """Refuse a OneCycleLR that ends before training does, because its next step would fail."""
    scheduler, to_come = scheduled.scheduler, steps_to_come(runner, optim, scheduled)
    if not isinstance(scheduler, OneCycleLR) or to_come is None:
        return
    length, needed = scheduler.total_steps, scheduler.last_epoch + to_come
    if needed > length:
        unit = {"epoch": "epoch", "iter": "iteration", "step": "optimizer step"}[str(scheduled.when)]
        advice = (
            f"Set total_steps to {needed}"
            if runner.saving.resumed_at < 0
            else "The length is that of the checkpoint and cannot grow; train only to its end, or start a new run from "
            "its weights (load_from)"
        )
        raise ConfigError(
            f"{type(scheduler).__name__} has {length} steps, but this run needs {needed}: it steps after every {unit}. "
            f"{advice}"
        )


def steps_to_come(runner: RunnerHost, optim: Optim, scheduled: Scheduled) -> int | None:
    """Return how often a scheduler will step until training ends; None if that is unknown."""
    loop, position = runner.train_loop, runner.position
    if scheduled.when == "epoch":
        return None if loop.max_epochs is None else max(loop.max_epochs - position.epoch, 0)
    if loop.total_iters is None or scheduled.when == "val":
        return None
    if scheduled.when == "iter":
        return max(loop.total_iters - position.iter, 0)
    return None if loop.updates_itself else max(_updates(loop, optim.accumulate) - optim.updates, 0)


def _updates(loop: TrainLoop, accumulate: int) -> int:
    """Return the number of optimizer steps of the whole training, if no batch is skipped."""
    if loop.max_epochs is not None:
        return loop.max_epochs * -(-(loop.length or 0) // accumulate)
    return -(-(loop.max_iters or 0) // accumulate)

"""Checks of the optims before the first step: parameters, closures, and the lengths of schedules."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR, SequentialLR

from hookline.engine.host import CustomPart
from hookline.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from hookline.engine.loop_specs import TrainLoop
    from hookline.engine.optim import Optim, Scheduled
    from hookline.engine.runner_host import RunnerHost

log = logging.getLogger("hookline")

CLOSURE_HINT = "write a step with a parameter named optim that calls optim.optimizer.step(closure)"


def check_optims(runner: RunnerHost) -> None:
    """Refuse an optim that cannot train this model, or cannot train to the end."""
    for name, optim in runner.optims.items():
        who = _name_of(name, optim)
        if not runner.steps_are_custom:
            refuse_closure(optim.optimizer, who, runner.closure_hint)
        if outside := refuse_foreign(runner, optim, who):
            log.warning(
                "%s updates %d parameters that are not in the model, so checkpoints do not contain them. Put them into "
                "the model, or add their module with runner.add_part.",
                who,
                outside,
            )
        for scheduled in optim.schedulers:
            refuse_short_schedule(runner, optim, scheduled)


def check_parameters(runner: RunnerHost) -> None:
    """Check, after hooks could change model and optimizers, that the first step trains parameters of the model."""
    for name, optim in runner.optims.items():
        who = _name_of(name, optim)
        refuse_foreign(runner, optim, who)
        updated = optim.parameters()
        if updated and not runner.steps_are_custom and not any(each.requires_grad for each in updated):
            raise ConfigError(
                f"{who} updates only parameters that are frozen (requires_grad is False), so nothing would be trained; "
                "unfreeze some of them: parameter.requires_grad_(True)"
            )


def _name_of(name: str, optim: Optim) -> str:
    kind = type(optim.optimizer).__name__
    return f"the optimizer of optim '{name}' ({kind})" if name else f"the optimizer ({kind})"


def refuse_closure(optimizer: Optimizer, who: str, hint: str = CLOSURE_HINT) -> None:
    """Refuse an optimizer such as LBFGS, whose step evaluates the model again."""
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ConfigError(
            f"{who} needs a closure that evaluates the model again, which the loop does not provide. Use another "
            f"optimizer, or {hint}"
        )


def refuse_foreign(runner: RunnerHost, optim: Optim, who: str) -> int:
    """Refuse an optimizer that updates nothing of the model. Return how many other parameters it updates."""
    modules = [runner.model, *(part.part for part in runner.parts.values() if isinstance(part, CustomPart))]
    known = {id(each) for module in modules if isinstance(module, nn.Module) for each in module.parameters()}
    updated = optim.parameters()
    outside = sum(id(parameter) not in known for parameter in updated)
    if updated and outside == len(updated):
        raise ConfigError(
            f"{who} updates none of the model's parameters, so the model would not be trained. Create the optimizer "
            "with the parameters of the model that the Runner gets; to train a second model, put both into one module, "
            "or add it with runner.add_part"
        )
    return outside


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
    to_come = steps_to_come(runner, optim, scheduled)
    for cycle, needed in cycle_ends(scheduled.scheduler, to_come or 0):
        if needed > cycle.total_steps:
            advice = (
                f"Set total_steps to {needed}"
                if runner.saving.resumed_at < 0
                else "The length is that of the checkpoint and cannot grow; train only to its end, or start a new run "
                "from its weights (load_from)"
            )
            raise ConfigError(
                f"{type(cycle).__name__} has {cycle.total_steps} steps, but this run needs {needed}: it steps after "
                f"every {scheduled.unit}. {advice}"
            )


def cycle_ends(scheduler: LRScheduler, to_come: int) -> Iterator[tuple[Any, int]]:
    """Yield the OneCycleLRs in a scheduler, with the step at which each is after `to_come` steps of the scheduler.

    A scheduler of another class that fails after its `total_steps` has a method `reached_after` that returns this step.
    """
    if hasattr(scheduler, "reached_after"):
        yield scheduler, scheduler.reached_after(to_come)
    elif isinstance(scheduler, OneCycleLR):
        yield scheduler, scheduler.last_epoch + to_come
    elif isinstance(scheduler, SequentialLR):
        reached, milestones = scheduler.last_epoch + to_come, scheduler._milestones
        ends = [*milestones, reached + 1]
        for inner, begin, end in zip(scheduler._schedulers, [0, *milestones], ends, strict=True):
            if reached >= begin:  # its first step is its step 0
                last = min(reached, end - 1) - begin
                yield from cycle_ends(inner, last - getattr(inner, "last_epoch", 0))
    else:
        for inner in getattr(scheduler, "_schedulers", ()):
            yield from cycle_ends(inner, to_come)


def explain_schedule(scheduler: LRScheduler, unit: str, error: ValueError) -> None:
    """If a step failed because a cycle has ended, raise an error that says what to do."""
    for cycle, reached in cycle_ends(scheduler, 0):
        if reached > cycle.total_steps:
            raise ConfigError(
                f"{type(cycle).__name__} has {cycle.total_steps} steps, but this run needs more: it steps after every "
                f"{unit}. Set total_steps to the number of {unit}s of the whole training"
            ) from error


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

"""Errors of an update and of a scheduler's step, with what to do about them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR, SequentialLR

from hookline.common.torch_private import INNER_MILESTONES
from hookline.errors import ConfigError, HooklineError
from hookline.optim import retiming
from hookline.optim.nesting import inside, walk
from hookline.run.hints import Hints

if TYPE_CHECKING:
    from torch.optim import Optimizer


def refuse_closure(optimizer: Optimizer, who: str, hint: str = Hints.closure) -> None:
    """Refuse an optimizer such as LBFGS, whose step evaluates the model again."""
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ConfigError(
            f"{who} needs a closure that evaluates the model again, which the loop does not provide. Use another "
            f"optimizer, or {hint}"
        )


def refuse_other_optimizer(scheduler: LRScheduler, optimizer: Optimizer, who: str) -> None:
    """Refuse a scheduler that was created with another optimizer, because it would change the rates of that one.

    A wrapper that has the parameter groups of the optimizer counts as the optimizer.
    """
    for _, each in reversed(list(walk(scheduler))):  # an inner one is named before the outer one
        other = getattr(each, "optimizer", optimizer)
        groups = getattr(other, "param_groups", None)
        if other is optimizer or groups is None or any(a is b for a in groups for b in optimizer.param_groups):
            continue
        kind = type(each).__name__
        raise ConfigError(
            f"{kind} was created with another optimizer ({type(other).__name__}), so it would never change the rate of "
            f"{who}. Create it with the optimizer of its Optim: Optim(optimizer, schedulers=[{kind}(optimizer, ...)])"
        )


def cycle_ends(scheduler: LRScheduler, to_come: int) -> Iterator[tuple[Any, int]]:
    """Yield the OneCycleLRs in a scheduler, with the step at which each is after `to_come` steps of the scheduler.

    A scheduler of another class that fails after its `total_steps` has a method `reached_after` that returns this step.
    """
    if hasattr(scheduler, "reached_after"):
        yield scheduler, scheduler.reached_after(to_come)
    elif isinstance(scheduler, OneCycleLR):
        yield scheduler, retiming.reached_after(scheduler, to_come)
    elif isinstance(scheduler, SequentialLR):
        reached, milestones = scheduler.last_epoch + to_come, getattr(scheduler, INNER_MILESTONES)
        ends = [*milestones, reached + 1]
        for inner, begin, end in zip(inside(scheduler), [0, *milestones], ends, strict=True):
            if reached >= begin:  # its first step is its step 0
                last = min(reached, end - 1) - begin
                yield from cycle_ends(inner, last - getattr(inner, "last_epoch", 0))
    else:
        for inner in inside(scheduler):
            yield from cycle_ends(inner, to_come)


def explain_schedule(scheduler: LRScheduler, unit: str, error: ValueError) -> None:
    """If a step failed because a cycle has ended, raise an error that says what to do."""
    for cycle, reached in cycle_ends(scheduler, 0):
        if reached > cycle.total_steps:
            raise ConfigError(
                f"{type(cycle).__name__} has {cycle.total_steps} steps, but this run needs more: it steps after every "
                f"{unit}. Set total_steps to the number of {unit}s of the whole training"
            ) from error


def refuse_complex(loss: Any) -> None:
    """Refuse a loss that is a complex number, because it has no direction to go down."""
    if isinstance(loss, Tensor) and loss.is_complex():
        kind = "complex " + "sparse " * loss.is_sparse
        raise HooklineError(
            f"the loss of the step is a {kind}tensor of shape {tuple(loss.shape)}; return a real number, such as "
            "loss.abs()"
        )


def explain_backward(error: RuntimeError, loss: Any) -> None:
    """If a backward pass failed because the loss is complex or has no gradient, raise an error that says what to do."""
    refuse_complex(loss)
    if isinstance(loss, Tensor) and not loss.requires_grad:
        raise HooklineError(
            "the loss has no gradient: it was detached (.item(), .detach(), no_grad), or it does not depend on a "
            "trainable parameter of the model; return the loss as computed from the model's outputs"
        ) from error

"""Stretching a schedule: the rest of its curve is re-timed to the steps that are left.

A run that is extended or shortened keeps the curve of its checkpoint, but follows it at another speed. At step `step`,
the schedule was at `position` of its curve, which ends at `until`. From there on, it moves in equal parts, so that it
reaches the end of the curve at step `end`:

    position of the curve at step t = position + (t - step) * (until - position) / (end - step)

So the rate does not jump where the run continues, and the curve ends with the run. These four numbers are an attribute
of the scheduler, so they are saved and restored with its state. A run can be stretched again: the next four numbers
begin where the schedule is then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from hookline.common.checks import is_finite
from hookline.common.torch_private import CLOSED_FORM
from hookline.optim.nesting import walk

#: The attribute of a scheduler with the four numbers, and their names.
ATTRIBUTE = "retiming"
NUMBERS = ("step", "position", "until", "end")

#: The schedulers of torch whose `get_lr` is a function of `last_epoch` alone.
DIRECT = (LambdaLR, OneCycleLR)


class Retimed(LRScheduler):
    """A scheduler that follows its curve at another speed. `restore` mixes this class into the scheduler's own."""

    retiming: Mapping[str, float]

    def get_lr(self) -> Any:
        """Return the rates at the position of the curve that belongs to this step.

        Schedulers of torch that can be combined multiply the current rate, and so does this.
        """
        now = rates_at(self, position_at(self.retiming, self.last_epoch))
        if is_direct(self):
            return now
        before = rates_at(self, position_at(self.retiming, self.last_epoch - 1))
        current = [group["lr"] for group in self.optimizer.param_groups]
        return [rate * new / old if old else new for rate, new, old in zip(current, now, before, strict=True)]


def can_be_stretched(scheduler: LRScheduler) -> bool:
    """Return whether the rates of a scheduler are a function of its step, so that there is a curve to stretch."""
    return hasattr(scheduler, "stretch") or is_direct(scheduler) or hasattr(scheduler, CLOSED_FORM)


def stretch(scheduler: LRScheduler, until: float, end: int) -> None:
    """Let a scheduler reach the end of its curve, which is at `until`, at step `end`.

    hookline's own schedules do this themselves.
    """
    step = scheduler.last_epoch
    if hasattr(scheduler, "stretch"):
        scheduler.stretch(max(end - step, 0))
        return
    before = vars(scheduler).get(ATTRIBUTE)
    position = position_at(before, step) if before else float(step)
    numbers = (step, position, max(before["until"] if before else until, position), end)
    setattr(scheduler, ATTRIBUTE, dict(zip(NUMBERS, map(float, numbers), strict=True)))
    restore(scheduler)


def position_at(retiming: Mapping[str, float], step: float) -> float:
    """Return the position of the curve at a step."""
    began, position, until, end = (retiming[name] for name in NUMBERS)
    if step <= began:
        return position
    return until if step >= end else position + (step - began) * (until - position) / (end - began)


def reached_after(scheduler: LRScheduler, steps: int) -> int:
    """Return the position of the curve after this many more steps, rounded up."""
    step, retiming = scheduler.last_epoch + steps, vars(scheduler).get(ATTRIBUTE)
    return step if retiming is None else math.ceil(position_at(retiming, step))


def rates_at(scheduler: LRScheduler, position: float) -> list[float]:
    """Return the rates of a scheduler at any position of its curve."""
    own, scheduler.last_epoch = scheduler.last_epoch, cast("int", position)
    try:
        if not is_direct(scheduler):
            return cast("list[float]", getattr(scheduler, CLOSED_FORM)())
        kind = _kind_of(scheduler)
        return cast("list[float]", kind.get_lr(scheduler))
    finally:
        scheduler.last_epoch = own


def restore(scheduler: LRScheduler) -> None:
    """Give a scheduler, and its nested schedulers, the class that belongs to its state."""
    for _, each in walk(scheduler):
        if ATTRIBUTE in vars(each) and not isinstance(each, Retimed):
            each.__class__ = _retimed(type(each))  # type: ignore[arg-type]  # a class can be hashed


def find(scheduler: LRScheduler, parameter: str) -> tuple[LRScheduler, str]:
    """Return the scheduler that has a parameter, and its name there: `schedulers.1.T_max` is one of the second."""
    name = parameter.rpartition(".")[2]
    return dict(walk(scheduler))[parameter.removesuffix(name)], name


def saved_parameter(state: Any, parameter: str) -> Any:
    """Return a parameter in the saved state of a scheduler, or of a nested one: `schedulers.1.T_max`."""
    name = parameter.rpartition(".")[2]
    own = dict(walk(state)).get(parameter.removesuffix(name))
    return own.get(name) if isinstance(own, Mapping) else None


def malformed(state: Any) -> bool:
    """Return whether the saved state of a scheduler, or of a nested one, has numbers here that no one saves."""
    states = [each for _, each in walk(state) if isinstance(each, dict)]
    return not all(map(_is_retiming, [each[ATTRIBUTE] for each in states if each.get(ATTRIBUTE) is not None]))


def _is_retiming(numbers: Any) -> bool:
    return (
        isinstance(numbers, dict)
        and set(numbers) == set(NUMBERS)
        and all(is_finite(value) and 0 <= value < 1 << 53 for value in numbers.values())
    )


def is_direct(scheduler: LRScheduler) -> bool:
    """Return whether `get_lr` itself depends on the step alone. Other classes can say so: `is_function_of_step`."""
    return isinstance(scheduler, DIRECT) or getattr(scheduler, "is_function_of_step", False) is True


def _kind_of(scheduler: LRScheduler) -> type[LRScheduler]:
    kind = type(scheduler)
    return cast("type[LRScheduler]", kind.__mro__[2]) if isinstance(scheduler, Retimed) else kind


@cache
def _retimed(kind: type[LRScheduler]) -> type[LRScheduler]:
    """Return a class with the same name, which checkpoints compare."""
    return type(kind.__name__, (Retimed, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})

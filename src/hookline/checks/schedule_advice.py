"""Advice on schedules whose lengths or units do not fit the run, with what to write instead.

The rules know the schedulers of torch and of `schedules`. Schedulers of other classes, and nested schedulers
(SequentialLR, ChainedScheduler), may count as they like. A length that differs by a tenth is close enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.optim import lr_scheduler

from hookline.common.monitor import infer_rule
from hookline.common.torch_private import INNER_MILESTONES
from hookline.optim.lengths import UNITS, known_length
from hookline.optim.schedules import TOO_SHORT, Cosine, Linear, Schedule, WarmupStableDecay
from hookline.optim.warmup import Warmup

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LRScheduler

    from hookline.engine.loop_specs import TrainLoop
    from hookline.engine.run import Run
    from hookline.optim.optim import Optim
    from hookline.optim.scheduled import Scheduled

#: Schedules that fall to their end.
CURVES = (Linear, Cosine, WarmupStableDecay)

#: The parameter that has the length of the curve, and what follows if it is longer than the run.
TOO_LONG: dict[type, tuple[str, str]] = {
    lr_scheduler.OneCycleLR: ("total_steps", "it never reaches its end"),
    lr_scheduler.CosineAnnealingLR: ("T_max", "it never reaches its end"),
    lr_scheduler.LinearLR: ("total_iters", "it never reaches its end"),
    lr_scheduler.ConstantLR: ("total_iters", "the rate never returns to its full value"),
    lr_scheduler.PolynomialLR: ("total_iters", "it never reaches its end"),
    lr_scheduler.CosineAnnealingWarmRestarts: ("T_0", "it never restarts"),
}


def advice(runner: Run, optim: Optim) -> Iterator[str]:
    """Yield a message about every schedule of an optim that does not fit the run."""
    for scheduled in optim.schedulers:
        case = Case(runner, optim, scheduled)
        yield from _overwritten(optim, scheduled)
        if scheduled.when == "epoch" and not case.loop.by_epoch:
            yield case.only_once()
        elif isinstance(scheduled.scheduler, lr_scheduler.ReduceLROnPlateau):
            yield from _never_reduced(scheduled.scheduler, case)
            yield from _wrong_direction(scheduled.scheduler, case)
        elif case.steps is not None:
            for rule in RULES:
                found = rule(scheduled.scheduler, case)
                if found is not None:
                    yield found
                    break


@dataclass(frozen=True)
class Case:
    """A scheduler in a run, and the words for a message about it."""

    runner: Run
    optim: Optim
    scheduled: Scheduled

    @property
    def loop(self) -> TrainLoop:
        """Return the training loop as it is planned."""
        return self.runner.train_loop.planned

    @property
    def steps(self) -> int | None:
        """Return how often the scheduler steps in the whole training; None if that is unknown."""
        return self.length_in(str(self.scheduled.when))

    def length_in(self, when: str) -> int | None:
        """Return the length of the training in a unit; None if it is unknown."""
        if when == "step" and self.loop.updates_itself:
            return None
        return known_length(self.loop, when, self.optim.accumulate)

    def message(self, what: str, so: str, then: str) -> str:
        """Return the message: what was found, how often the scheduler steps, what follows, and what to write."""
        who = type(self.scheduled.scheduler).__name__
        times = f"{self.steps:,} times" if self.steps != 1 else "once"
        return f"{who}: {what}, but it steps after every {self.scheduled.unit}, {times} in this run, so {so}. {then}"

    def step_at(self, when: str) -> str:
        """Return what to write so that the scheduler steps at another time."""
        return f"'when: {when}'" if self.runner.config is not None else f"(scheduler, '{when}')"

    def use_length(self, parameter: str) -> str:
        """Return what to write so that a parameter is the length of the run."""
        return f"'{parameter}: auto'" if self.runner.config is not None else f"{parameter}={self.steps}"

    def fix(self, value: int, parameter: str | None) -> str:
        """Return what to write, for a number that does not fit: another unit, if it fits there, or another number."""
        steps, when = self.steps or 0, str(self.scheduled.when)
        for other in ("iter", "step", "epoch") if self.loop.by_epoch else ("iter", "step"):
            length = self.length_in(other)
            if other != when and length is not None and length != steps and value == length:
                return f"{value:,} is the number of {UNITS[other]}s: write {self.step_at(other)}"
        otherwise = "use a lower number" if parameter is None else f"write {self.use_length(parameter)}"
        epochs, iters = self.length_in("epoch"), self.length_in("iter")
        if when == "epoch" and value > steps and (iters is None or value <= iters):
            return f"If it counts iterations, write {self.step_at('iter')}; otherwise, {otherwise}"
        if when != "epoch" and self.loop.by_epoch and epochs is not None and value <= epochs:
            return f"If it counts epochs, write {self.step_at('epoch')}; otherwise, {otherwise}"
        return otherwise[0].upper() + otherwise[1:]

    def only_once(self) -> str:
        """Return the message about a scheduler by epochs in a training by iterations."""
        return (
            f"{type(self.scheduled.scheduler).__name__}: it steps after every epoch, but this run trains by iterations "
            f"and counts as one epoch, so it never changes the rate. Write {self.step_at('iter')}"
        )


Rule = Callable[["LRScheduler", Case], str | None]


def _overwritten(optim: Optim, scheduled: Scheduled) -> Iterator[str]:
    """Report a scheduler whose rates a Schedule overwrites. Of several Schedules, the last one wins."""
    scheduler = scheduled.scheduler
    who, others = type(scheduler), [each.scheduler for each in optim.schedulers]
    if isinstance(scheduler, Schedule):
        others = others[others.index(scheduler) + 1 :]
    elif isinstance(scheduler, Warmup) or not who.__module__.startswith("torch.optim"):
        return
    for other in others:
        if isinstance(other, Schedule):
            yield (
                f"{who.__name__}: {type(other).__name__} sets the rate itself, so changes that {who.__name__} makes "
                "are lost. Use one of them"
            )


def _curve_too_long(scheduler: LRScheduler, case: Case) -> str | None:
    """Report a curve that is longer than the run."""
    parameter, so = TOO_LONG.get(type(scheduler), ("", ""))
    if type(scheduler) in CURVES:
        parameter, so = "length", "it never reaches its end"
    value, steps = getattr(scheduler, parameter, 0) if parameter else 0, case.steps or 0
    if value <= steps + max(1, steps // 10):
        return None
    return case.message(f"{parameter} is {value:,}", so, case.fix(value, parameter))


def _curve_too_short(scheduler: LRScheduler, case: Case) -> str | None:
    """Report a curve that is shorter than the run, if it does not simply stay at its end."""
    parameter, so = TOO_SHORT.get(type(scheduler), ("", ""))
    if isinstance(scheduler, Schedule) and type(scheduler) in CURVES and scheduler.end_factor == 0:
        parameter, so = "length", "the rate is 0 after its end"
    steps = case.steps or 0
    value = getattr(scheduler, parameter) if parameter else steps
    if value >= steps - max(1, steps // 10):
        return None
    return case.message(f"{parameter} is {value:,}", so, case.fix(value, parameter))


def _never_changes(scheduler: LRScheduler, case: Case) -> str | None:
    """Report steps and milestones that the run never reaches."""
    steps = case.steps or 0
    if type(scheduler) is lr_scheduler.StepLR and scheduler.step_size >= steps:
        return case.message(
            f"step_size is {scheduler.step_size:,}", "it never changes the rate", case.fix(scheduler.step_size, None)
        )
    if type(scheduler) is lr_scheduler.CyclicLR:
        rising = round(scheduler.total_size * scheduler.step_ratio)
        if rising > steps:
            return case.message(f"step_size_up is {rising:,}", "it never reaches max_lr", case.fix(rising, None))
    return None


def _milestones(scheduler: LRScheduler, case: Case) -> str | None:
    """Report milestones that the run never reaches."""
    known = {lr_scheduler.MultiStepLR: "milestones", lr_scheduler.SequentialLR: INNER_MILESTONES}
    name, steps = known.get(type(scheduler)), case.steps or 0
    if name is None:
        return None
    milestones = sorted(getattr(scheduler, name))
    late = [each for each in milestones if each >= steps]
    if not late:
        return None
    so = "it never changes the rate" if late == milestones else f"{late} is never reached"
    return case.message(f"milestones is {milestones}", so, case.fix(late[-1], None))


def _never_reduced(scheduler: Any, case: Case) -> Iterator[str]:
    """Report a ReduceLROnPlateau whose patience is longer than the run."""
    validations = case.loop.total_validations
    # The first validation is the best one so far, and then `patience` ones may be worse.
    if case.runner.val_loops and validations is not None and validations < scheduler.patience + 2:
        yield (
            f"ReduceLROnPlateau: patience is {scheduler.patience:,}, but this run has only {validations:,} "
            f"validation{'s' if validations != 1 else ''}, so it never changes the rate. Use a lower number, or "
            "validate more often: val_interval"
        )


def _wrong_direction(scheduler: Any, case: Case) -> Iterator[str]:
    """Report a ReduceLROnPlateau that takes the better values of its metric for the worse ones."""
    name = case.scheduled.monitor or next(_metric_names(case.runner), "")
    rule = infer_rule(name)
    mode = {"greater": "max", "less": "min"}.get(rule or "")
    if mode is not None and mode != scheduler.mode:
        better = "higher" if mode == "max" else "lower"
        write = f"'mode: {mode}'" if case.runner.config is not None else f"mode='{mode}'"
        yield (
            f"ReduceLROnPlateau: mode is '{scheduler.mode}', but a {better} {name} is better, so the rate is reduced "
            f"while {name} improves. Write {write}"
        )


def _metric_names(runner: Run) -> Iterator[str]:
    """Yield the names of the metrics in the order of a validation's results, as far as they are known."""
    for name, loop in runner.val_loops.items():
        for each in [*loop.metrics.names, *["loss"] * (loop.loss is not None)]:
            yield f"{name}/{each}" if name else each


RULES: tuple[Rule, ...] = (
    _curve_too_long,
    _curve_too_short,
    _never_changes,
    _milestones,
)

"""Checks of the schedules before the first step: do their lengths and units fit the run?

A schedule that would fail later is refused. One that would silently do something else than its numbers say is reported,
with what to write instead. `schedule_advice` has the rules.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hookline.checks import schedule_advice
from hookline.checks.reach import mentions, names_in
from hookline.errors import ConfigError
from hookline.optim.lengths import UNITS, known_length
from hookline.optim.refusals import cycle_ends

if TYPE_CHECKING:
    from hookline.engine.run import Run
    from hookline.optim.optim import Optim
    from hookline.optim.scheduled import Scheduled

log = logging.getLogger("hookline")

#: What is reported once.
KEPT_LENGTHS = "lengths"


def check_schedules(runner: Run) -> None:
    """Refuse a schedule that would fail before the end, and report those that do not fit the run.

    A resumed run reports nothing: its schedules have begun, and the run that began them has reported it.
    """
    for name, optim in runner.optims.items():
        for scheduled in optim.schedulers:
            refuse_short_schedule(runner, optim, scheduled)
        if runner.strict_start and runner.loading.resumed_at < 0:
            for message in schedule_advice.advice(runner, optim):
                log.warning("%s%s", f"optim '{name}': " if name else "", message)
    if runner.strict_start:
        report_unstepped(runner)


def report_unstepped(runner: Run) -> None:
    """Warn about schedulers that nothing steps: no hook of hookline does, and no code of the user calls a `step`."""
    kinds = [type(each.scheduler).__name__ for optim in runner.optims.values() for each in optim.schedulers]
    if not kinds or any(getattr(entry.hook, "steps_schedulers", False) for entry in runner.plan):
        return
    if mentions(runner, "step") or "step" in names_in(runner.train_loop.step):
        return
    off = "'param_scheduler: null'" if runner.config is not None else "'param_scheduler': None"
    log.warning(
        "%s never steps, because this run has no ParamSchedulerHook, so the rate does not change. Remove %s from "
        "default_hooks, or, if the rate is to stay as it is, remove the scheduler",
        *(", ".join(dict.fromkeys(kinds)), off),
    )


def report_kept_lengths(runner: Run) -> None:
    """Warn about schedules whose length `auto` was computed from the data with which the run was built.

    Code of the user may have replaced the data since. This is reported once.
    """
    loop, data = runner.train_loop, runner.data
    if not (runner.strict_start and loop.by_epoch and data) or loop.length in (None, data.batches):
        return
    kinds = {
        type(each.scheduler).__name__: each.unit
        for optim in runner.optims.values()
        for each in optim.schedulers
        if each.auto and each.when in ("iter", "step")
    }
    if kinds and KEPT_LENGTHS not in runner.reported:
        runner.reported.add(KEPT_LENGTHS)
        log.warning(
            "the data was replaced: an epoch has %s batches now, and %s when training began. The length of %s is "
            "'auto', and stays as it was when training began; set it to the number of %ss of the whole training",
            *(loop.length, data.batches, ", ".join(kinds), next(iter(kinds.values()))),
        )


def refuse_short_schedule(runner: Run, optim: Optim, scheduled: Scheduled) -> None:
    """Refuse a OneCycleLR that ends before training does, because its next step would fail."""
    to_come = steps_to_come(runner, optim, scheduled)
    for cycle, needed in cycle_ends(scheduled.scheduler, to_come or 0):
        if needed > cycle.total_steps:
            advice = (
                f"Set total_steps to {needed}{_other_unit(runner, optim, cycle.total_steps, needed)}"
                if runner.loading.resumed_at < 0
                else "The length comes from the checkpoint and cannot grow; train only to its end, or start a new run "
                "from its weights (load_from)"
            )
            raise ConfigError(
                f"{type(cycle).__name__} has {cycle.total_steps} steps, but this run needs {needed}: it steps after "
                f"every {scheduled.unit}. {advice}"
            )


def _other_unit(runner: Run, optim: Optim, length: int, needed: int) -> str:
    """Return a hint if the length is plainly the number of epochs of the run."""
    epochs = known_length(runner.train_loop, "epoch", optim.accumulate)
    if epochs != length or needed < 2 * length or not runner.train_loop.by_epoch:
        return ""
    return f" ({length} is the number of epochs, but this scheduler is made for iterations)"


def steps_to_come(runner: Run, optim: Optim, scheduled: Scheduled) -> int | None:
    """Return how often a scheduler will step until training ends; None if that is unknown."""
    loop, position, when = runner.train_loop, runner.position, scheduled.when
    if when not in UNITS or (when == "epoch" and not loop.by_epoch) or (when == "step" and loop.updates_itself):
        return None
    total = known_length(loop, when, optim.accumulate)
    done = {"epoch": position.epoch, "iter": position.iter}.get(when, optim.updates)
    return None if total is None else max(total - done, 0)

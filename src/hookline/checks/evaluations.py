"""Checks of the evaluations before the first step: loaders, one trial batch, and the metrics that hooks need."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hookline.checks.trial import Stage, try_evaluations
from hookline.common.escape import escaped
from hookline.common.monitor import AUTO, refuse_unknown
from hookline.errors import ConfigError
from hookline.plan.entry import is_custom

if TYPE_CHECKING:
    from hookline.engine.run import Run
    from hookline.plan.calls import Call
    from hookline.plan.entry import Entry

log = logging.getLogger("hookline")

#: The points and scopes of a validation.
OF_VALIDATION = re.compile(r"(?:before|after|around)_val(?:_epoch|_iter)?")


def check_evaluations(runner: Run) -> None:
    """Try one batch of each evaluation loop, and refuse the name of a metric that validation does not return."""
    if runner.strict_start:
        report_without_result(runner)
    watched = list(watched_metrics(runner))
    if watched and not runner.may_validate:
        who, name = watched[0]
        raise ConfigError(
            f"{who} needs the metric '{name}', but this run has no validation; add `val` to the Runner or to the config"
        )
    stages = stages_to_try(runner)
    if not stages:
        return
    found = try_evaluations(runner, stages)
    for who, name in watched:
        if name != AUTO and not found.may_have(name):
            refuse_unknown(name, found.metrics, who)
    if runner.val_loops and not found.unknown:
        for entry in runner.plan:
            if hasattr(entry.hook, "know_metrics"):
                entry.hook.know_metrics(found.metrics)


def report_without_result(runner: Run) -> None:
    """Warn about validations that compute nothing: no metrics, no loss, and no hook that looks at their outputs."""
    if any(_looks(entry, call) for entry in runner.plan for call in entry.calls):
        return
    for name, loop in runner.val_loops.items():
        if loop.loss is None and not loop.metrics.names and loop.may_be_tried:
            log.warning(
                "%s has neither metrics nor a loss, so its validations have no result. Set metrics, for example %s, or "
                "remove the validation",
                f"val {escaped(name)}".strip(),
                "'metrics: {accuracy: accuracy}'" if runner.config is not None else "metrics={'accuracy': accuracy}",
            )


def _looks(entry: Entry, call: Call) -> bool:
    """Return whether a call may use the outputs of a validation: of a user's hook, or of one that draws them."""
    if not OF_VALIDATION.fullmatch(call.point.name):
        return False
    return is_custom(entry.hook) or "outputs" in call.passed


def stages_to_try(runner: Run) -> tuple[Stage, ...]:
    """Return the stages whose evaluation loops are tried: none if it is off, in a dialect, or if training is over."""
    if not (runner.trial_batch and runner.strict_start) or runner.train_loop.is_over(runner.position):
        return ()
    return ("val", "test") if all(loop.may_be_tried for loop in runner.val_loops.values()) else ()


def watched_metrics(runner: Run) -> Iterator[tuple[str, str]]:
    """Yield the hooks and schedulers that need a metric, each with the name of the metric."""
    for entry in runner.plan:
        if hasattr(entry.hook, "watched_metrics"):
            yield from ((entry.name, name) for name in entry.hook.watched_metrics())
    for optim in runner.optims.values():
        for scheduled in optim.schedulers:
            if scheduled.monitor is not None:
                yield type(scheduled.scheduler).__name__, scheduled.monitor

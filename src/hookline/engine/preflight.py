"""Checks of the evaluations before the first step: loaders, one trial batch, and the metrics that hooks need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from hookline.common.monitor import AUTO, refuse_unknown
from hookline.data.batches import is_empty
from hookline.engine.trial import Stage, try_evaluations
from hookline.errors import ConfigError, DataError

if TYPE_CHECKING:
    from hookline.engine.loop_specs import EvalLoop, TrainLoop
    from hookline.engine.runner_host import RunnerHost


def check_evaluations(runner: RunnerHost) -> None:
    """Try one batch of each evaluation loop, and refuse the name of a metric that validation does not return."""
    watched = list(watched_metrics(runner))
    if watched and not runner.val_loops:
        who, name = watched[0]
        raise ConfigError(
            f"{who} needs the metric '{name}', but this run has no validation; add `val` to the Runner or to the config"
        )
    stages = stages_to_try(runner, bool(watched))
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


def stages_to_try(runner: RunnerHost, watched: bool) -> tuple[Stage, ...]:
    """Return the stages whose evaluation loops are tried: none if the user turned it off, or training is over."""
    if not runner.trial_batch or runner.train_loop.is_over(runner.position):
        return ()
    if not all(loop.may_be_tried for loop in runner.val_loops.values()):
        return ()
    if not runner.strict_start:
        return ("val",) if watched else ()
    return ("val", "test")


def watched_metrics(runner: RunnerHost) -> Iterator[tuple[str, str]]:
    """Yield the hooks and schedulers that need a metric, each with the name of the metric."""
    for entry in runner.plan:
        if hasattr(entry.hook, "watched_metrics"):
            yield from ((entry.name, name) for name in entry.hook.watched_metrics())
    for optim in runner.optims.values():
        for scheduled in optim.schedulers:
            if scheduled.monitor is not None:
                yield type(scheduled.scheduler).__name__, scheduled.monitor


def refuse_empty_loaders(found: Mapping[str, TrainLoop | EvalLoop]) -> None:
    """Refuse a loader that is known to have no batch."""
    for name, loop in found.items():
        if is_empty(loop.dataloader):
            raise DataError(f"the loader of '{name}' is empty: it has no batch")

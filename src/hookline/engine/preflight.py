"""One dry validation batch before training, so that a metric that somebody waits for is known to come."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hookline.common import rng
from hookline.common.modes import in_mode
from hookline.common.monitor import AUTO, refuse_unknown
from hookline.data.batches import Batches
from hookline.data.transfer import to_device
from hookline.errors import ConfigError

if TYPE_CHECKING:
    from hookline.engine.loop_specs import EvalLoop
    from hookline.engine.runner_host import RunnerHost

log = logging.getLogger("hookline")


def check_watched_metrics(runner: RunnerHost) -> None:
    """Refuse a metric that validation will not give; no point is called, and modes and generators are as before."""
    watched = list(watched_metrics(runner))
    if not watched:
        return
    if not runner.val_loops:
        who, name = watched[0]
        raise ConfigError(
            f"{who} waits for the metric '{name}', and this run has no validation: "
            "Runner(..., val=EvalLoop(loader, ...))"
        )
    metrics = try_one_batch(runner)
    if metrics is None:
        return
    for who, name in watched:
        if name != AUTO:
            refuse_unknown(name, metrics, who)
    for entry in runner.plan:
        if hasattr(entry.hook, "know_metrics"):
            entry.hook.know_metrics(metrics)


def watched_metrics(runner: RunnerHost) -> Iterator[tuple[str, str]]:
    """Who waits for which metric."""
    for entry in runner.plan:
        if hasattr(entry.hook, "watched_metrics"):
            yield from ((entry.name, name) for name in entry.hook.watched_metrics())
    for optim in runner.optims.values():
        for scheduled in optim.schedulers:
            if scheduled.monitor is not None:
                yield type(scheduled.scheduler).__name__, scheduled.monitor


def try_one_batch(runner: RunnerHost) -> dict[str, Any] | None:
    """The metrics of one batch of each validation set; None where they cannot be had without doing harm."""
    metrics: dict[str, Any] = {}
    for name, loop in runner.val_loops.items():
        if isinstance(loop.dataloader, Iterator):  # it gives each batch once, and the validation needs them
            return None
        with rng.preserved(), in_mode(runner.model, training=False), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one batch is few for some metrics, and they say so
            try:
                found = _one_batch(runner, loop)
            except Exception as error:  # a hook may prepare the batch, and one batch may be too few for a metric
                log.warning(
                    "the names of metrics cannot be checked before training: %s: %s", type(error).__name__, error
                )
                return None
        metrics |= {f"{name}/{key}" if name else key: value for key, value in found.items()}
    return metrics


def _one_batch(runner: RunnerHost, loop: EvalLoop) -> dict[str, Any]:
    loop.metrics.reset(runner.device)
    batch, _ = next(iter(Batches(loop.dataloader, 1, seed=runner.seed)))
    batch = to_device(batch, runner.device)
    with runner.autocast():
        if not loop.only_loss:
            loop.metrics.update(loop.step(runner.wrapped, batch), batch)
    found = loop.metrics.compute()
    loop.metrics.reset(runner.device)
    return found | ({} if loop.loss is None else {"loss": 0.0})

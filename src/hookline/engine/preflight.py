"""One trial batch of each validation set before training, to check that all metrics that hooks need exist."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hookline.common import rng
from hookline.common.modes import in_mode
from hookline.common.monitor import AUTO, refuse_unknown
from hookline.data.batches import Batches, length_of
from hookline.data.transfer import to_device
from hookline.errors import ConfigError, DataError

if TYPE_CHECKING:
    from hookline.engine.loop_specs import EvalLoop, TrainLoop
    from hookline.engine.runner_host import RunnerHost

log = logging.getLogger("hookline")


def check_watched_metrics(runner: RunnerHost) -> None:
    """Refuse the name of a metric that validation does not return.

    No point is called. The modes of the model and the random generators are unchanged afterwards.
    """
    watched = list(watched_metrics(runner))
    if not watched:
        return
    if not runner.val_loops:
        who, name = watched[0]
        raise ConfigError(
            f"{who} needs the metric '{name}', but this run has no validation; add one: "
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
    """Yield the hooks and schedulers that need a metric, each with the name of the metric."""
    for entry in runner.plan:
        if hasattr(entry.hook, "watched_metrics"):
            yield from ((entry.name, name) for name in entry.hook.watched_metrics())
    for optim in runner.optims.values():
        for scheduled in optim.schedulers:
            if scheduled.monitor is not None:
                yield type(scheduled.scheduler).__name__, scheduled.monitor


def try_one_batch(runner: RunnerHost) -> dict[str, Any] | None:
    """Return the metrics of one batch of each validation set; None if one cannot be tried, or fails."""
    metrics: dict[str, Any] = {}
    for name, loop in runner.val_loops.items():
        if isinstance(loop.dataloader, Iterator):  # it yields each batch once, and validation needs all of them
            return None
        with rng.preserved(), in_mode(runner.model, training=False), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some metrics warn that one batch is not enough
            try:
                found = _one_batch(runner, loop)
            except ConfigError:  # a metric that returns no number never will
                raise
            except Exception as error:  # a hook may have to prepare the batch, or a metric may need more than one batch
                log.warning(
                    "the names of the metrics cannot be checked before training: %s: %s", type(error).__name__, error
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


def refuse_empty_loaders(found: Mapping[str, TrainLoop | EvalLoop]) -> None:
    """Refuse a loader that is known to have no batch."""
    for name, loop in found.items():
        if length_of(loop.dataloader) == 0:
            raise DataError(f"the loader of '{name}' is empty: it has no batch")

"""One trial batch of each validation set before training, to check that all metrics that hooks need exist."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hookline.common import rng
from hookline.common.modes import in_mode
from hookline.common.monitor import AUTO, refuse_unknown
from hookline.data.batches import Batches, is_empty
from hookline.data.transfer import to_device
from hookline.engine.rehearsal import buffers_restored
from hookline.errors import ConfigError, DataError

if TYPE_CHECKING:
    from torch import nn

    from hookline.engine.loop_specs import EvalLoop, TrainLoop
    from hookline.engine.metrics import Metrics
    from hookline.engine.runner_host import RunnerHost

log = logging.getLogger("hookline")


def check_watched_metrics(runner: RunnerHost) -> None:
    """Refuse the name of a metric that validation does not return.

    No point is called.
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
    tried = try_one_batch(runner)
    if tried is None:
        return
    metrics, complete = tried
    for who, name in watched:
        if name != AUTO and complete:
            refuse_unknown(name, metrics, who)
    for entry in runner.plan if complete else ():
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


def try_one_batch(runner: RunnerHost) -> tuple[dict[str, Any], bool] | None:
    """Return the metrics of one batch of each validation set, and whether these are all; None if one cannot be tried.

    The trial uses copies of the metrics, and leaves the model and the random generators as they were.
    """
    metrics: dict[str, Any] = {}
    complete = True
    for name, loop in runner.val_loops.items():
        if isinstance(loop.dataloader, Iterator):  # it yields each batch once, and validation needs all of them
            return None
        copies, left_out = loop.metrics.copies()
        if left_out:
            complete = False
            log.warning(
                "the trial validation before training leaves out metrics that cannot be copied, so their names are not "
                "checked: %s",
                ", ".join(left_out),
            )
        with trial(runner.model):
            try:
                found = _one_batch(runner, loop, copies)
            except ConfigError:  # a metric that returns no number never will
                raise
            except Exception as error:  # a hook may have to prepare the batch, or a metric may need more than one batch
                log.warning(
                    "the names of the metrics cannot be checked before training: %s: %s", type(error).__name__, error
                )
                return None
        metrics |= {f"{name}/{key}" if name else key: value for key, value in found.items()}
    return metrics, complete


@contextmanager
def trial(model: nn.Module) -> Iterator[None]:
    """Evaluate something that must not count."""
    with rng.preserved(), buffers_restored(model), in_mode(model, training=False), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some metrics warn that one batch is not enough
        yield


def _one_batch(runner: RunnerHost, loop: EvalLoop, metrics: Metrics) -> dict[str, Any]:
    metrics.reset(runner.device)
    strategy = runner.strategy
    batches = Batches(loop.dataloader, 1, seed=runner.seed, may_be_empty=not strategy.acts_alone)
    batch, _ = next(iter(batches), (None, True))
    if strategy.any(batch is None):
        raise DataError("a process has no batch of its own")
    batch = to_device(batch, runner.device)
    with runner.strategy.evaluating(runner.wrapped) as model, runner.autocast():
        if not loop.only_loss:
            metrics.update(loop.step(model, batch), batch)
    with strategy.alone("the trial validation"):  # it may have failed in another process
        return metrics.compute() | ({} if loop.loss is None else {"loss": 0.0})


def refuse_empty_loaders(found: Mapping[str, TrainLoop | EvalLoop]) -> None:
    """Refuse a loader that is known to have no batch."""
    for name, loop in found.items():
        if is_empty(loop.dataloader):
            raise DataError(f"the loader of '{name}' is empty: it has no batch")

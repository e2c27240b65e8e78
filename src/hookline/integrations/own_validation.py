"""A validation that others run: the points of a validation around it, and the metrics that it reports."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hookline.checks.evaluations import watched_metrics
from hookline.engine.metrics import as_result
from hookline.engine.steps import describe
from hookline.errors import HooklineError
from hookline.run.position import CurrentWeight

if TYPE_CHECKING:
    from torch import nn

    from hookline.engine.run import Run

log = logging.getLogger("hookline")


class OwnValidation:
    """The validations of a loop that the user writes, or of another engine.

    The metrics are reported inside the context, or after it. In the second case, the scopes of the validation have
    ended, and its last points are called with the report.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._inside = False
        self._metrics: dict[str, Any] | None = None
        self._shown: set[str] = set()
        #: True once there was an evaluation.
        self.was_used = False
        #: True if an evaluation has ended, and its metrics were not reported yet.
        self.is_unreported = False

    @contextmanager
    def running(self) -> Iterator[nn.Module]:
        """Surround an evaluation with the points of a validation, and yield the model to call."""
        run, plan, evaluation = self._run, self._run.plan, self._run.evaluation
        if self._inside:
            raise HooklineError("run.evaluating() was called inside run.evaluating(); use one of them")
        self.was_used = True
        if self.is_unreported:
            self.end_unreported()
        of_training, run.current.weight = run.current.weight, CurrentWeight()
        self._inside, self._metrics = True, None
        try:
            run.strategy.settle()
            with plan.ledger.part("validation"), plan.around("val"), evaluation.in_mode():
                plan.before_val()
                with plan.around("val_epoch"):
                    plan.before_val_epoch()
                    with run.strategy.evaluating(run.wrapped) as model:
                        yield model
                    self.is_unreported = self._metrics is None
                    if self._metrics is not None:
                        plan.after_val_epoch(self._metrics)
                if not self.is_unreported:
                    self._count()
        finally:
            self._inside = False
            run.current.weight = of_training
        if run.running == "train" and not run.train_loop.is_over(run.position):
            evaluation.after_validation()

    def report(self, metrics: Mapping[str, Any]) -> None:
        """Take the metrics of the evaluation that is running or has just ended. Without one, they are a validation."""
        if not isinstance(metrics, Mapping) or not all(isinstance(name, str) for name in metrics):
            raise HooklineError(f"run.report() needs a dict of metrics by name, not {describe(metrics)}")
        metrics = {name: as_result(name, value, self._shown) for name, value in metrics.items()}
        if not self._run.strategy.acts_alone:
            self._run.evaluation.compare_metrics("val", metrics)
        self.take(metrics)

    def take(self, metrics: Mapping[str, Any]) -> None:
        """Take metrics that are numbers, and the same in all processes."""
        if self._inside:
            self._metrics = {**(self._metrics or {}), **metrics}
        elif self.is_unreported:
            self._end(dict(metrics))
        else:
            with self.running():
                self._metrics = dict(metrics)

    def end_unreported(self) -> None:
        """End an evaluation whose metrics were not reported: hooks see a validation without metrics."""
        if self.is_unreported:
            self._end({})

    def _end(self, metrics: dict[str, Any]) -> None:
        self.is_unreported = False
        self._run.plan.after_val_epoch(metrics)
        self._count()

    def _count(self) -> None:
        position = self._run.position
        position.validated_at = position.iter
        self._run.plan.after_val()
        position.validations += 1
        self._run.journal.note("validation")

    def warn_if_never_reported(self) -> None:
        """Warn about hooks that have waited for metrics, if no metrics were ever reported."""
        if self._run.validates_itself and not self._run.position.validations:
            for who, name in watched_metrics(self._run):
                log.warning("%s needs the metric '%s', but run.report({'%s': ...}) was never called", who, name, name)


@contextmanager
def counted(run: Run, in_iteration: bool) -> Iterator[None]:
    """Count the iteration whose body is not over: inside a validation, counters include the step before it."""
    position = run.position
    if not in_iteration:
        yield
        return
    ends_pass = run.current.ends_epoch and not run.train_loop.by_epoch
    before = position.epoch, position.batch
    position.iter += 1
    position.epoch, position.batch = (before[0] + 1, 0) if ends_pass else (before[0], before[1] + 1)
    try:
        yield
    finally:
        position.iter -= 1
        position.epoch, position.batch = before

"""The trial before training: one batch of every evaluation loop, so that a mistake in one costs no epoch.

No point is called. The trial uses copies of the metrics. It restores the modes, buffers, gradients and counters of the
model, the random generators, and what the data remembers. A failure ends the run before its first step, except in two
cases, which give a warning: a metric that cannot be computed from one batch, and a failure that a hook may prevent,
which prepares something at a point.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from hookline.common import rng
from hookline.common.escape import escaped
from hookline.common.modes import in_mode
from hookline.common.untouched import ConsumedError, buffers_restored, gradients_restored, modules_untouched, untouched
from hookline.data.batches import Batches
from hookline.data.transfer import to_device
from hookline.data.weights import batch_size
from hookline.engine.metrics import Average, mean_of
from hookline.engine.steps import as_outputs
from hookline.errors import ConfigError, blame
from hookline.plan.calls import blame_step
from hookline.plan.entry import is_custom

if TYPE_CHECKING:
    from torch import nn

    from hookline.engine.loop_specs import EvalLoop
    from hookline.engine.metrics import Metrics
    from hookline.engine.run import Run
    from hookline.plan.plan import Plan

log = logging.getLogger("hookline")

Stage = Literal["val", "test"]

#: How to train without the trial, as a note on its errors.
HOW_TO_SKIP = (
    "one batch of every validation and test set is tried before the first step; to train without this trial, set "
    "trial_batch: false (in Python: Runner(..., trial_batch=False))"
)


@dataclass
class Found:
    """The metrics that the trial of one or more evaluation loops has found."""

    metrics: dict[str, Any] = field(default_factory=dict)
    #: The metrics that have no result yet. An empty name, or one that ends with `/`, stands for any number of them.
    unknown: list[str] = field(default_factory=list)

    def may_have(self, name: str) -> bool:
        """Return whether an evaluation may give a metric of this name."""
        return name in self.metrics or any(
            name == each or name.startswith(each if each.endswith("/") or not each else f"{each}/")
            for each in self.unknown
        )

    def add(self, other: Found, prefix: str) -> None:
        """Add the metrics of one data set."""
        self.metrics |= {prefix + name: value for name, value in other.metrics.items()}
        self.unknown += [prefix + name for name in other.unknown]


def try_evaluations(runner: Run, stages: tuple[Stage, ...]) -> Found:
    """Try one batch of each evaluation loop of these stages, and return the metrics of the validations."""
    found = Found(unknown=[""] * runner.validates_itself)  # code of the user may report any metric
    with trial(runner.model):
        for stage in stages:
            for name, loop in (runner.val_loops if stage == "val" else runner.test_loops).items():
                tried = Trial(runner, stage, name, loop).run()
                if stage == "val":
                    found.add(tried, f"{name}/" if name else "")
    return found


@contextmanager
def trial(model: nn.Module) -> Iterator[None]:
    """Evaluate something that must not count."""
    with ExitStack() as restoring:
        restoring.enter_context(rng.preserved())
        restoring.enter_context(buffers_restored(model))
        restoring.enter_context(gradients_restored(model))
        restoring.enter_context(modules_untouched(model))
        restoring.enter_context(in_mode(model, training=False))
        restoring.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # some metrics warn that one batch is not enough
        yield


class Trial:
    """The trial of one evaluation loop."""

    def __init__(self, runner: Run, stage: Stage, name: str, loop: EvalLoop) -> None:
        self.runner = runner
        self.stage = stage
        self.loop = loop
        self.label = f"{stage} {escaped(name)}".strip()

    def run(self) -> Found:
        """Read a batch, evaluate it, and return the metrics. All processes take part."""
        loop, strategy = self.loop, self.runner.strategy
        if isinstance(loop.dataloader, Iterator):  # it yields each batch once, and the evaluation needs all of them
            return Found(unknown=[""])
        metrics, left_out = loop.metrics.copies()
        if left_out:
            log.warning(
                "the trial of %s before training leaves out metrics that cannot be copied, so their names are not "
                "checked: %s",
                self.label,
                ", ".join(left_out),
            )
        batch, problem = self._read()
        if self._agree(problem):
            return Found(unknown=[""])
        found = Found(unknown=[""] * bool(left_out))
        with strategy.evaluating(self.runner.wrapped) as model:
            problem = self._evaluate(model, batch, metrics, found)
        return Found(unknown=[""]) if self._agree(problem) else found

    def _read(self) -> tuple[Any, str]:
        """Return the first batch, and why there is none."""
        loop, runner = self.loop, self.runner
        alone = runner.strategy.acts_alone
        try:
            with untouched(loop.dataloader):
                batches = Batches(loop.dataloader, 1, seed=runner.seed, may_be_empty=not alone, once=True)
                pair = next(iter(batches), None)
        except ConsumedError as error:
            return None, f"{error}, and the evaluation needs all of it"
        except Exception as error:
            problem = self._excuse(error, reading=True)
            if not problem:
                raise
            return None, problem
        return (None, "this process has no batch of its own") if pair is None else (pair[0], "")

    def _evaluate(self, model: nn.Module, batch: Any, metrics: Metrics, found: Found) -> str:
        """Evaluate the batch, and add its metrics. Return why that is not possible."""
        loop, runner, average = self.loop, self.runner, Average()
        try:
            metrics.reset(runner.device)
            batch = batch if runner.compute.on_cpu else to_device(batch, runner.device)
            with runner.autocast():
                if loop.loss is not None:
                    average.update(as_outputs(loop.loss(model, batch))["loss"], batch_size(batch))
                outputs = None if loop.only_loss else loop.step(model, batch)
            if not loop.only_loss:
                metrics.update(outputs, batch, batch_size(outputs, batch), check=True)
            with runner.strategy.alone("the trial before training"):  # another process may have failed before
                found.metrics, failed = metrics.try_compute()
        except Exception as error:
            problem = self._excuse(error)
            if not problem:
                raise
            return problem
        for name, reason in failed.items():
            found.unknown.append(name)
            log.warning(
                "%s%s cannot be computed from one batch, so its name is not checked before training: %s: %s",
                *(f"the metric '{escaped(name)}' of " if name else "a metric of ", self.label),
                *(type(reason).__name__, reason),
            )
        if loop.loss is not None:
            found.metrics["loss"] = mean_of(average.sums())
        return ""

    def _excuse(self, error: Exception, reading: bool = False) -> str:
        """Return the text of a warning about a failure that may not happen later; empty, with notes, for any other.

        A hook may have to prepare the model, the data or the batch. A metric that returns no number never will.
        """
        text = f"{type(error).__name__}: {error}"
        if not isinstance(error, ConfigError):
            helpers = preparing(self.runner.plan, self.stage, reading)
            if helpers:
                return f"{text}\n  it may work later, because no hook is called here: {', '.join(helpers)}"
        blame_step(error, self.runner.plan.host, f"the trial of {self.label} before training, batch 0")
        blame(error, HOW_TO_SKIP)
        return ""

    def _agree(self, problem: str) -> bool:
        """Return whether any process has a problem, and warn about the first one."""
        problem = self.runner.strategy.agree_on_first(problem)
        if problem:
            log.warning("the trial of %s before training was not possible: %s", self.label, problem)
        return bool(problem)


def preparing(plan: Plan, stage: Stage, reading: bool = False) -> list[str]:
    """Return the user's hooks that may prepare something before a batch of an evaluation is read, or used.

    They are called between the trial and the evaluation, and are no observers. Each is returned with its first point.
    """
    points = ["before_train", "around_train", f"before_{stage}", f"around_{stage}"]
    points += [f"before_{stage}_epoch", f"around_{stage}_epoch"]
    if not reading:
        points += [f"before_{stage}_iter", f"around_{stage}_iter", "around_forward"]
    found: dict[str, str] = {}
    for entry in plan:
        if is_custom(entry.hook) and getattr(entry.hook, "role", "actor") != "observer":
            for call in entry.calls:
                if call.point.name in points:
                    found.setdefault(entry.name, f"{entry.name} at {call.point.name}")
    return list(found.values())

"""The loops that `train_cfg`, `val_cfg` and `test_cfg` describe, as settings of hookline's loops.

Their methods `run`, `run_epoch` and `run_iter` are for projects that override some of them and call the others; see
`own_loops`. Otherwise, hookline's loops do the work.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from hookline.dialects.mmengine.evaluator.evaluator import Evaluator, EvaluatorMetrics
from hookline.dialects.mmengine.runner import own_loops
from hookline.dialects.mmengine.runner.amp import autocast
from hookline.dialects.mmengine.runner.base_loop import BaseLoop
from hookline.dialects.mmengine.runner.counters import Counters
from hookline.dialects.mmengine.runner.utils import calc_dynamic_intervals
from hookline.engine.loop_specs import EvalLoop, TrainLoop

if TYPE_CHECKING:
    from torch import nn

    from hookline.dialects.mmengine.runner.runner import Runner
    from hookline.run.position import Position


def train_step(model: Any, batch: Any, optim: Any) -> Any:
    """Let the model compute its losses and update itself."""
    return model.train_step(batch, optim_wrapper=optim)


def val_step(model: Any, batch: Any) -> Any:
    """Return the model's predictions for a validation batch."""
    return model.val_step(batch)


def test_step(model: Any, batch: Any) -> Any:
    """Return the model's predictions for a test batch."""
    return model.test_step(batch)


class _TrainLoop(TrainLoop, Counters):
    """The common base of both training loops."""

    def __init__(
        self,
        runner: Runner,
        dataloader: Any,
        limits: dict[str, Any],
        val_begin: int,
        val_interval: int,
        dynamic_intervals: Sequence[tuple[int, int]] | None,
    ) -> None:
        built = runner.build_dataloader(dataloader, seed=runner.seed)
        super().__init__(built, train_step, **limits, val_begin=val_begin, val_interval=val_interval)
        self._attach(runner)
        meta = getattr(getattr(built, "dataset", None), "metainfo", None)
        if meta is not None:
            runner.visualizer.dataset_meta = meta
        self.dynamic_milestones, self.dynamic_intervals = calc_dynamic_intervals(val_interval, dynamic_intervals)
        own = self.overridden()
        if own == ["run_iter"]:
            self.iterate = own_loops.run_iter
        self.is_own = bool(own) and own != ["run_iter"]
        own_loops.report(self)

    @property
    def _max_epochs(self) -> int:
        return self.max_epochs or 1

    @property
    def _max_iters(self) -> int | None:
        return self.max_iters

    def _decide_current_val_interval(self) -> None:
        """Use the interval of validation that applies now."""
        done = self._epoch if self.by_epoch else self._iter
        self.val_interval = self.dynamic_intervals[bisect_right(self.dynamic_milestones, done) - 1]

    def _step(self, batch_idx: int, data_batch: Any) -> None:
        """Call the points of an iteration, and the model's step between them."""
        runner = self.runner
        runner.call_hook("before_train_iter", batch_idx=batch_idx, data_batch=data_batch)
        outputs = train_step(runner.wrapped, data_batch, runner.optim_wrapper)
        runner.call_hook("after_train_iter", batch_idx=batch_idx, data_batch=data_batch, outputs=outputs)
        self._iter += 1

    def _validate_if_due(self) -> None:
        self._decide_current_val_interval()
        done, last = (self._epoch, self._max_epochs) if self.by_epoch else (self._iter, self.max_iters)
        if self.runner.has_validation and done >= self.val_begin and (done % self.val_interval == 0 or done == last):
            self.runner.val_loop.run()

    def validation_due(self, at: Position) -> bool:
        """Return whether validation is due before the next step. A new interval applies from its milestone on."""
        self._decide_current_val_interval()
        return not self.is_own and super().validation_due(at)  # a loop of a project validates itself


class EpochBasedTrainLoop(_TrainLoop):
    """Epoch-based training.

    Args:
        runner: The runner of this loop.
        dataloader: The dataloader, or a dict that describes it.
        max_epochs: The number of epochs.
        val_begin: Start validating after this epoch.
        val_interval: Validate every `val_interval` epochs, and after the last one.
        dynamic_intervals: Changes of the interval: pairs of an epoch and the interval from that epoch on.
    """

    def __init__(
        self,
        runner: Runner,
        dataloader: Any,
        max_epochs: int,
        val_begin: int = 1,
        val_interval: int = 1,
        dynamic_intervals: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        super().__init__(runner, dataloader, {"max_epochs": max_epochs}, val_begin, val_interval, dynamic_intervals)
        if self.length is not None:
            self.max_iters = max_epochs * self.length

    def run(self) -> nn.Module:
        """Train the model and return it."""
        runner = self.runner
        if not self._counting:
            return runner.train()
        runner.call_hook("before_train")
        while self._epoch < self._max_epochs and not self.stop_training:
            self.run_epoch()
            self._validate_if_due()
        runner.call_hook("after_train")
        return runner.model

    def run_epoch(self) -> None:
        """Train an epoch."""
        runner = self.runner
        runner.call_hook("before_train_epoch")
        runner.model.train()
        for batch_idx, data_batch in enumerate(self.dataloader):
            self.run_iter(batch_idx, data_batch)
        runner.call_hook("after_train_epoch")
        self._epoch += 1

    def run_iter(self, idx: int, data_batch: Any) -> None:
        """Train on a batch."""
        self._step(idx, data_batch)


class IterBasedTrainLoop(_TrainLoop):
    """Iteration-based training.

    Args:
        runner: The runner of this loop.
        dataloader: The dataloader, or a dict that describes it.
        max_iters: The number of iterations.
        val_begin: Start validating after this iteration.
        val_interval: Validate every `val_interval` iterations, and after the last one.
        dynamic_intervals: Changes of the interval: pairs of an iteration and the interval from that iteration on.
    """

    def __init__(
        self,
        runner: Runner,
        dataloader: Any,
        max_iters: int,
        val_begin: int = 1,
        val_interval: int = 1000,
        dynamic_intervals: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        super().__init__(runner, dataloader, {"max_iters": max_iters}, val_begin, val_interval, dynamic_intervals)
        #: The batches for a loop of a project: pass after pass, from the position of the run on.
        self.dataloader_iterator = self._endless()

    def run(self) -> nn.Module:
        """Train the model and return it."""
        runner = self.runner
        if not self._counting:
            return runner.train()
        runner.call_hook("before_train")
        runner.call_hook("before_train_epoch")
        while self._iter < (self.max_iters or 0) and not self.stop_training:
            runner.model.train()
            self.run_iter(next(self.dataloader_iterator))
            self._validate_if_due()
        runner.call_hook("after_train_epoch")
        runner.call_hook("after_train")
        return runner.model

    def run_iter(self, data_batch: Any) -> None:
        """Train on a batch."""
        self._step(self._iter, data_batch)


class _InfiniteDataloaderIterator:
    """Yields the batches of a dataloader pass after pass, for loops of projects that read their data by themselves."""

    def __init__(self, dataloader: Any) -> None:
        self._dataloader, self._epoch = dataloader, 0
        self._iterator = iter(dataloader)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        for batch in self._iterator:
            return batch
        self._epoch += 1
        if hasattr(self._dataloader, "set_epoch"):
            self._dataloader.set_epoch(self._epoch)
        self._iterator = iter(self._dataloader)
        return next(self._iterator)


class _EvalLoop(EvalLoop, BaseLoop):
    """The common base of the validation and test loops."""

    stage = "val"

    def __init__(self, runner: Runner, dataloader: Any, evaluator: Any, fp16: bool = False) -> None:
        step = val_step if self.stage == "val" else test_step
        super().__init__(runner.build_dataloader(dataloader, seed=runner.seed), step)
        self._attach(runner)
        self.evaluator: Evaluator = runner.build_evaluator(evaluator)
        dataset = getattr(self.dataloader, "dataset", None)
        meta = getattr(dataset, "metainfo", None)
        if meta is not None:
            self.evaluator.dataset_meta = meta
            runner.visualizer.dataset_meta = meta
        self.metrics = EvaluatorMetrics(self.evaluator, dataset)
        self.fp16 = fp16
        self.within = self._in_evaluation_mode
        #: Whether the project's own code evaluates, now and in general.
        self.own_run, self.is_own = False, bool(self.overridden())
        own_loops.report(self)

    def _in_evaluation_mode(self) -> AbstractContextManager[Any]:
        """Return the context to evaluate in. A hook may have changed modes, and MMEngine's loops call `eval()`."""
        self.runner.model.eval()
        return autocast(self.runner.device.type) if self.fp16 else nullcontext()

    def run(self) -> dict[str, Any]:
        """Evaluate and return the metrics: immediately if a run is in progress, otherwise as a separate run."""
        runner = self.runner
        if runner.running is None:
            return runner.val() if self.stage == "val" else runner.test()
        if not self.own_run:
            return runner._host.evaluation.run("val" if self.stage == "val" else "test")
        runner.call_hook(f"before_{self.stage}")
        runner.call_hook(f"before_{self.stage}_epoch")
        runner.model.eval()
        for batch_idx, data_batch in enumerate(self.dataloader):
            self.run_iter(batch_idx, data_batch)
        metrics = self.metrics.compute()
        runner.call_hook(f"after_{self.stage}_epoch", metrics=metrics)
        runner.call_hook(f"after_{self.stage}")
        return metrics

    @torch.no_grad()
    def run_iter(self, idx: int, data_batch: Any) -> None:
        """Evaluate a batch."""
        runner, stage = self.runner, self.stage
        runner.call_hook(f"before_{stage}_iter", batch_idx=idx, data_batch=data_batch)
        with autocast(runner.device.type, enabled=self.fp16):
            outputs = self.step(runner.wrapped, data_batch)
        self.evaluator.process(data_samples=outputs, data_batch=data_batch)
        runner.call_hook(f"after_{stage}_iter", batch_idx=idx, data_batch=data_batch, outputs=outputs)


class ValLoop(_EvalLoop):
    """Settings of validation.

    Args:
        runner: The runner of this loop.
        dataloader: The dataloader, or a dict that describes it.
        evaluator: An Evaluator, metrics, or dicts that describe them.
        fp16: Predict in lower precision.
    """

    stage = "val"


class TestLoop(_EvalLoop):
    """Settings of testing; see ValLoop."""

    __test__ = False  # pytest would collect it as a test class
    stage = "test"

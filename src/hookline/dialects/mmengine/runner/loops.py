"""The loops that `train_cfg`, `val_cfg` and `test_cfg` describe, as settings of hookline's loops."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from hookline.dialects.mmengine.evaluator.evaluator import Evaluator, EvaluatorMetrics
from hookline.dialects.mmengine.runner.amp import autocast
from hookline.dialects.mmengine.runner.base_loop import BaseLoop
from hookline.dialects.mmengine.runner.utils import calc_dynamic_intervals
from hookline.engine import loops
from hookline.engine.loop_specs import EvalLoop, TrainLoop

if TYPE_CHECKING:
    from torch import nn

    from hookline.dialects.mmengine.runner.runner import Runner
    from hookline.engine.position import Position


def train_step(model: Any, batch: Any, optim: Any) -> Any:
    """Let the model compute its losses and update itself."""
    return model.train_step(batch, optim_wrapper=optim)


def val_step(model: Any, batch: Any) -> Any:
    """Return the model's predictions for a validation batch."""
    return model.val_step(batch)


def test_step(model: Any, batch: Any) -> Any:
    """Return the model's predictions for a test batch."""
    return model.test_step(batch)


class _TrainLoop(TrainLoop, BaseLoop):
    """The common base of both training loops."""

    def __init__(
        self,
        runner: Runner,
        dataloader: Any,
        limits: dict[str, int],
        val_begin: int,
        val_interval: int,
        dynamic_intervals: Sequence[tuple[int, int]] | None,
    ) -> None:
        built = runner.build_dataloader(dataloader, seed=runner.seed)
        super().__init__(built, train_step, **limits, val_begin=val_begin, val_interval=val_interval)
        self._attach(runner)
        self.dynamic_milestones, self.dynamic_intervals = calc_dynamic_intervals(val_interval, dynamic_intervals)

    @property
    def epoch(self) -> int:
        """Return the number of finished epochs."""
        return self.runner.epoch

    @property
    def iter(self) -> int:
        """Return the number of finished iterations."""
        return self.runner.iter

    @property
    def stop_training(self) -> bool:
        """Return whether training will stop after the current epoch, or after the current iteration if not by epoch."""
        requests = self.runner.requests
        return bool(requests.stop or requests.stopped)

    @stop_training.setter
    def stop_training(self, stop: bool) -> None:
        if stop:
            self.runner.stop("stop_training was set", when="epoch" if self.by_epoch else "iter")
        else:
            self.runner.requests.cancel_stop()

    def validation_due(self, at: Position) -> bool:
        """Return whether validation is due before the next step. A new interval applies from its milestone on."""
        done = at.epoch if self.by_epoch else at.iter
        self.val_interval = self.dynamic_intervals[bisect_right(self.dynamic_milestones, done) - 1]
        return super().validation_due(at)

    def run(self) -> nn.Module:
        """Train the model and return it."""
        return self.runner.train()


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

    def _in_evaluation_mode(self) -> AbstractContextManager[Any]:
        """Return the context to evaluate in. A hook may have changed modes, and MMEngine's loops call `eval()`."""
        self.runner.model.eval()
        return autocast(self.runner.device.type) if self.fp16 else nullcontext()

    def run(self) -> dict[str, Any]:
        """Evaluate and return the metrics: immediately if a run is in progress, otherwise as a separate run."""
        runner = self.runner
        if runner.running is not None:
            return loops.evaluate(runner, "val" if self.stage == "val" else "test")
        return runner.val() if self.stage == "val" else runner.test()


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

"""The loops that `train_cfg`, `val_cfg` and `test_cfg` describe, as loops of hookline."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
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
    """The model makes its own updates."""
    return model.train_step(batch, optim_wrapper=optim)


def val_step(model: Any, batch: Any) -> Any:
    """The predictions of the model."""
    return model.val_step(batch)


def test_step(model: Any, batch: Any) -> Any:
    """The predictions of the model."""
    return model.test_step(batch)


class _TrainLoop(TrainLoop, BaseLoop):
    """What both training loops have."""

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
        """Finished epochs."""
        return self.runner.epoch

    @property
    def iter(self) -> int:
        """Finished iterations."""
        return self.runner.iter

    @property
    def stop_training(self) -> bool:
        """Whether training is to stop: by epochs after the current one, else after the current iteration."""
        requests = self.runner.requests
        return bool(requests.stop or requests.stopped)

    @stop_training.setter
    def stop_training(self, stop: bool) -> None:
        if stop:
            self.runner.stop("stop_training was set", when="epoch" if self.by_epoch else "iter")
        else:
            self.runner.requests.cancel_stop()

    def validation_due(self, at: Position) -> bool:
        """Whether validation stands before the next step; a new interval holds from its milestone on."""
        done = at.epoch if self.by_epoch else at.iter
        self.val_interval = self.dynamic_intervals[bisect_right(self.dynamic_milestones, done) - 1]
        return super().validation_due(at)

    def run(self) -> nn.Module:
        """Train."""
        return self.runner.train()


class EpochBasedTrainLoop(_TrainLoop):
    """Training by epochs.

    Args:
        runner: The runner.
        dataloader: The data, or a dict that describes its loader.
        max_epochs: How many epochs.
        val_begin: The first epoch to validate after.
        val_interval: Validate every so many epochs, and after the last.
        dynamic_intervals: Other intervals from an epoch on: pairs of that epoch and the interval.
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
    """Training by iterations.

    Args:
        runner: The runner.
        dataloader: The data, or a dict that describes its loader.
        max_iters: How many iterations.
        val_begin: The first iteration to validate after.
        val_interval: Validate every so many iterations, and after the last.
        dynamic_intervals: Other intervals from an iteration on: pairs of that iteration and the interval.
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
    """What validation and test have in common."""

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
        if fp16:
            self.within = partial(autocast, runner.device.type)

    def run(self) -> dict[str, Any]:
        """Evaluate: inside a run, in the place where it is called; else as a run of its own."""
        runner = self.runner
        if runner.running is not None:
            return loops.evaluate(runner, "val" if self.stage == "val" else "test")
        return runner.val() if self.stage == "val" else runner.test()


class ValLoop(_EvalLoop):
    """Validation.

    Args:
        runner: The runner.
        dataloader: The data, or a dict that describes its loader.
        evaluator: The metrics: an Evaluator, metrics, or dicts that describe them.
        fp16: Predict in lower precision.
    """

    stage = "val"


class TestLoop(_EvalLoop):
    """Test; see ValLoop."""

    __test__ = False  # pytest would take it for tests
    stage = "test"

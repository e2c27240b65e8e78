"""Loops of a project that inherit from BaseLoop alone: they get what the engine and the hooks read of a loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from hookline.data.skipping import Skip
from hookline.data.weights import Weigher
from hookline.dialects.mmengine.errors import ConfigTypeError
from hookline.dialects.mmengine.evaluator.evaluator import Evaluator, EvaluatorMetrics
from hookline.dialects.mmengine.runner.base_loop import BaseLoop
from hookline.dialects.mmengine.runner.counters import Counters
from hookline.dialects.mmengine.runner.loops import train_step, val_step
from hookline.dialects.mmengine.runner.own_loops import report
from hookline.engine.loop_specs import EvalLoop, TrainLoop
from hookline.engine.metrics import Metrics

if TYPE_CHECKING:
    from hookline.run.position import Position


class Fallback:
    """An attribute that a loop has if the project's code has not set it."""

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        self._compute = compute

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, loop: Any, owner: type | None = None) -> Any:
        """Compute the attribute once: from then on, the loop has it."""
        if loop is None:
            return self
        return vars(loop).setdefault(self._name, self._compute(loop))


class OwnTrainLoop(Counters, TrainLoop):
    """The members of a training loop of a project besides its own code."""

    step = staticmethod(train_step)
    updates_itself = True
    limit_batches = None
    skip = Skip()
    weigher = Fallback(lambda loop: Weigher(None, type(loop).__name__))
    val_interval = Fallback(lambda loop: 1)  # a project sets it, or not
    val_begin = Fallback(lambda loop: 1)
    set_for_validation = Fallback(lambda loop: [])
    max_epochs = Fallback(lambda loop: getattr(loop, "_max_epochs", None))
    max_iters = Fallback(lambda loop: getattr(loop, "_max_iters", None))
    by_epoch = Fallback(lambda loop: loop.max_epochs is not None)
    dataloader_iterator = Fallback(lambda loop: loop._endless())
    _planned = None

    def validation_due(self, at: Position) -> bool:
        """Return False: a loop of a project validates itself."""
        return False


class OwnEvalLoop(BaseLoop, EvalLoop):
    """The members of an evaluation loop of a project besides its own code."""

    stage = "val"
    step = staticmethod(val_step)
    only_loss, loss, limit_batches, _planned = False, None, None, None
    is_own, own_run = True, False
    weigher = Fallback(lambda loop: Weigher(None, type(loop).__name__))
    metrics = Fallback(lambda loop: _metrics_of(loop))

    def within(self) -> AbstractContextManager[Any]:
        """Return an empty context: the loop sets the modes."""
        return nullcontext()


def _metrics_of(loop: Any) -> Metrics:
    evaluator = getattr(loop, "evaluator", None)
    if not isinstance(evaluator, Evaluator):
        return Metrics(None)
    return EvaluatorMetrics(evaluator, getattr(loop.dataloader, "dataset", None))


def adopt_train_loop(loop: Any) -> TrainLoop:
    """Return a loop that inherits from BaseLoop alone, as a training loop."""
    given = type(loop)

    def run(self: Any) -> Any:
        """Train: in a run of its own, or as the loop of the run in progress."""
        return given.run(self) if self._counting else self.runner.train()

    adopted: OwnTrainLoop = _adopt(loop, OwnTrainLoop, run)
    if adopted.max_epochs is None and adopted.max_iters is None:
        raise ConfigTypeError(
            f"train_cfg describes a {given.__name__} without max_epochs and max_iters, which hooks and schedulers "
            "read; set one of them in its __init__"
        )
    report(adopted)
    return adopted


def adopt_eval_loop(loop: Any, stage: str) -> EvalLoop:
    """Return a loop that inherits from BaseLoop alone, as an evaluation loop."""
    given = type(loop)

    def run(self: Any) -> Any:
        """Evaluate: in a run of its own, or in the run in progress."""
        if self.own_run:
            return given.run(self)
        runner = self.runner
        if runner.running is None:
            return runner.val() if self.stage == "val" else runner.test()
        return runner._host.evaluation.run(self.stage)

    adopted: OwnEvalLoop = _adopt(loop, OwnEvalLoop, run)
    adopted.stage = stage
    report(adopted)
    return adopted


def _adopt(loop: Any, role: type, run: Callable[[Any], Any]) -> Any:
    """Add the attributes of a role to an object. What its own class and its `__init__` have set stays."""
    given = type(loop)
    names = {"run": run, "__module__": given.__module__, "__qualname__": given.__qualname__, "__doc__": given.__doc__}
    metaclass: Any = type(given)
    loop.__class__ = metaclass(given.__name__, (given, role), names)
    return loop

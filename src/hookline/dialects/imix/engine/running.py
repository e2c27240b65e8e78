"""The native Runner that trains for an engine, and the hook that keeps the engine's counters and records."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.dialects.imix.engine.hooks.base_hook import HookBase
from hookline.dialects.imix.engine.hooks.evaluate import EvaluateHook
from hookline.dialects.imix.engine.hooks.periods.log_buffer_imix import LogBufferStorage, LogBufferWriter
from hookline.dialects.imix.engine.parts import Parts
from hookline.dialects.imix.engine.update import HookedOptim, WithoutUpdates
from hookline.dialects.imix.utils.config import read
from hookline.engine.evaluation import Evaluation
from hookline.errors import ConfigError, blame
from hookline.hooks.runtime_info import number_of
from hookline.plan.callers import failing_call
from hookline.plan.costs import Cost
from hookline.run.hints import Hints
from hookline.runner.hook import Hook
from hookline.runner.host import RunnerHost
from hookline.runner.runner import Runner
from hookline.strategies import Strategy, pick
from hookline.strategies.ddp import DDP

if TYPE_CHECKING:
    from hookline.engine.loop_specs import TrainLoop

# Default hooks of hookline that the dialect replaces with its own.
LEFT_OUT = dict.fromkeys(("runtime_info", "timer", "logger", "param_scheduler", "checkpoint"))


@dataclass
class EngineHints(Hints):
    """The hints in messages, in the words of iMIX."""

    nan: str = (
        "clip the gradients: optimizer_config=dict(grad_clip=dict(max_norm=1.0)), or find its source: "
        "custom_hooks=[dict(type='AutogradAnomalyDetectHook')]"
    )


class EngineEvaluation(Evaluation):
    """The evaluations of an engine: EvaluateHook runs those that are due, and here those that are requested."""

    @property
    def _hooks(self) -> list[EvaluateHook]:
        hooks = [entry.hook for entry in self.host.plan]
        return [hook for hook in hooks if isinstance(hook, EvaluateHook) and hook.is_run_eval]

    @property
    def possible(self) -> bool:
        """Return whether there is an EvaluateHook."""
        return bool(self._hooks)

    def run_if_due(self) -> bool:
        """Let EvaluateHook evaluate if that was requested, and return whether it did."""
        requests = self.host.requests
        if not (requests.validate and self.possible):
            return False
        requests.validate = False
        for hook in self._hooks:
            hook.evaluate(hook.trainer, self.host.position.iter)
        return True


class EngineHost(RunnerHost):
    """Trains for an engine. Its hooks evaluate."""

    strict_start = False
    needs_optim = False
    hints_class = EngineHints

    evaluation_class = EngineEvaluation


class EngineRunner(Runner):
    """A Runner that trains for an engine. It holds only a weak reference to the engine."""

    open_points = True
    _host_class = EngineHost


def runner_of(engine: Any, loop: TrainLoop) -> EngineRunner:
    """Build the Runner of an engine from its parts, its hooks and a loop."""
    strategy = _strategy(engine, loop)
    parts = Parts(Path(engine.work_dir), strategy.pick_device(engine.device))
    hooks = [entry.hook for entry in engine.plan]
    for hook in hooks:
        if isinstance(hook, HookBase):
            hook._prepare(parts)
    runner = EngineRunner(
        engine.model,
        strategy=strategy,
        train=loop,
        optim=_optim(engine, parts),
        default_hooks=LEFT_OUT,
        custom_hooks=[EngineState(engine), *([WithoutUpdates(engine)] if parts.updater is None else [])],
        writers=parts.writers,
        work_dir=parts.work_dir,
        experiment_name=engine.experiment_name,
        seed=engine.seed,
        device=parts.device,
        precision=parts.precision,
        load_from=engine.load_from,
        resume=engine.resume_from or False,
        config=engine.recorded_config,
        quiet=engine.quiet,
    )
    engine.log_buffer = LogBufferStorage(runner.hub, keeps_images=any(map(_takes_images, hooks)))
    for entry in engine.plan:
        runner.plan.add(entry.hook, entry.priority, priority_from=entry.priority_from)
    return runner


def _strategy(engine: Any, loop: TrainLoop) -> Strategy:
    """Return the strategy of this process. With several, the step has to call the model in its wrapper."""
    strategy = pick("auto")
    if strategy.world_size == 1:
        return strategy
    if not isinstance(strategy, DDP):  # accelerate's launcher has started the processes
        strategy = DDP()
    strategy.options["find_unused_parameters"] = bool(read(engine.cfg, "find_unused_parameters", False))
    if getattr(engine, "batch_processor", None) is not None:
        raise ConfigError(
            f"a batch_processor calls the model itself, so the gradients of {strategy.world_size} processes would not "
            "be averaged; use a loss_fn(model, batch) instead, and call the model that it gets"
        )
    loop.step = wrapped_step_of(engine)
    return strategy


def _optim(engine: Any, parts: Parts) -> HookedOptim | None:
    """Build the Optim with the settings that hooks set in `parts`; None if the user's hooks make the updates."""
    if engine.optimizer is None:
        who = parts.updater or ("LRSchedulerHook" if parts.schedulers else None)
        if who is not None:
            raise ConfigError(
                f"{who} needs an optimizer, but this {type(engine).__name__} has none; set engine.optimizer, or remove "
                "the hook if your own hook makes the updates"
            )
        return None
    accumulate = engine.gradient_accumulation_steps
    optim = HookedOptim(engine.optimizer, parts.schedulers, accumulate, keep_gradients=True)
    optim.clip, optim.scaler = parts.clip, parts.scaler
    optim.is_awaited = parts.updater is not None
    return optim


def _takes_images(hook: Any) -> bool:
    loggers = [hook, *getattr(hook, "loggers", ())]
    return any(isinstance(logger, LogBufferWriter) and logger.takes_images for logger in loggers)


def step_of(engine: Any) -> Any:
    """Return the native step. The engine computes the loss here, and OptimizerHook updates the weights later."""
    reference = weakref.ref(engine)

    def step(model: Any, batch: Any) -> Any:
        owner: Any = reference()
        owner.run_train_iter(batch, owner.data_time)
        output = owner.output
        return output["loss"] if len(output) == 1 and "loss" in output else output  # the loop's fastest path

    return step


def wrapped_step_of(engine: Any) -> Any:
    """Return the native step for several processes. `engine.model` has its wrapper inside, as in iMIX."""
    reference, step = weakref.ref(engine), step_of(engine)

    def step_in_wrapper(model: Any, batch: Any) -> Any:
        owner: Any = reference()
        bare, owner.model = owner.model, owner.wrapped
        try:
            return step(model, batch)
        finally:
            owner.model = bare

    return step_in_wrapper


class EngineState(Hook):
    """Keeps an engine's counters as iMIX counts, and records the outputs of its step."""

    priority = "HIGHEST"

    def __init__(self, engine: Any) -> None:
        self._engine: Any = weakref.ref(engine)
        self._waiting = Cost()
        self._waited = 0.0
        self._on_cpu = True

    @property
    def engine(self) -> Any:
        """Return the engine."""
        return self._engine()

    def around_run(self, runner: Any) -> Iterator[None]:
        """Make the engine's log buffer the current one while it trains."""
        engine = self.engine
        engine.exception = None
        engine.wrapped = runner.wrapped
        with engine.log_buffer:
            yield

    def before_train(self, runner: Any) -> None:
        """Set the counters, and start to measure how long training waits for the loader."""
        self._count(runner)
        self._on_cpu = runner.device.type == "cpu"
        self._waiting = runner.measure_data_wait()
        self._waited = self._waiting.seconds
        engine = self.engine
        engine.start_iter, engine.start_epoch = runner.position.iter, runner.position.epoch

    def before_train_epoch(self, runner: Any) -> None:
        """Set the counters of the epoch."""
        self._count(runner)

    def before_train_iter(self, runner: Any, batch_idx: int) -> None:
        """Set the counters of the iteration and the waiting time of its batch."""
        engine, at = self._engine(), runner.position
        engine.iter, engine.epoch, engine.inner_iter = at.iter, at.epoch, batch_idx
        engine.log_buffer.iter = at.iter
        waited = self._waiting.seconds
        engine.data_time, self._waited = waited - self._waited, waited

    def after_train_iter(self, runner: Any, outputs: dict[str, Any]) -> None:
        """Record every output of the step that is a single number."""
        engine = self._engine()
        put = engine.log_buffer.put_scalar
        put("data_time", engine.data_time)
        if runner.skipped:
            return
        for name, value in outputs.items():
            # The loop has checked the loss. On the CPU, it is kept as a number, so that its memory is free again.
            number = number_of(value) if name != "loss" else value.item() if self._on_cpu else value
            if number is not None:
                put(name, number)

    def after_train_epoch(self, runner: Any) -> None:
        """Advance the iteration counter. The epoch counter still shows the epoch that ends now."""
        self.engine.iter = runner.position.iter

    def after_train(self, runner: Any) -> None:
        """Set the final counters."""
        self.engine.iter, self.engine.has_begun = runner.position.iter, False

    def on_exception(self, runner: Any, error: BaseException) -> None:
        """Call `after_train` of the hooks that have begun. A failure there is noted and does not hide the error."""
        engine = self.engine
        engine.exception = error
        for entry in self._to_end(runner, error):
            try:
                entry.hook.after_train()
            except Exception as another:
                blame(error, f"then {entry.name} failed at after_train: {type(another).__name__}: {another}")

    def _to_end(self, runner: Any, error: BaseException) -> list[Any]:
        """Return the hooks whose `before_train` has finished and whose `after_train` has not started."""
        ours = [entry for entry in runner.plan if isinstance(entry.hook, HookBase)]
        began, ended = (failing_call(error, point) for point in ("before_train", "after_train"))
        names = [entry.name for entry in runner.plan]
        if began is not None:
            ours = [entry for entry in ours if names.index(entry.name) < names.index(began.who)]
        elif ended is not None:
            ours = [entry for entry in ours if names.index(entry.name) > names.index(ended.who)]
        elif runner.running != "train" or not self.engine.has_begun:
            return []
        return [entry for entry in ours if entry.hook._cleans_up]

    def _count(self, runner: Any) -> None:
        engine, at = self.engine, runner.position
        engine.has_begun = True
        engine.iter, engine.epoch, engine.inner_iter = at.iter, at.epoch, at.batch
        if runner.train_loop.is_over(at):
            engine.epoch = max(0, at.epoch - 1)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the log buffer without its numbers."""
        engine = self.engine
        return engine.log_buffer.state_dict() if engine is not None else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of the log buffer."""
        self.engine.log_buffer.load_state_dict(state)

"""An engine's run: the native Runner that trains for it, and what keeps the engine's counters and records."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.dialects.imix.engine.hooks.base_hook import HookBase
from hookline.dialects.imix.engine.hooks.periods.log_buffer_imix import LogBufferStorage, LogBufferWriter
from hookline.dialects.imix.engine.parts import Parts
from hookline.dialects.imix.engine.update import HookedOptim, WithoutUpdates
from hookline.engine.numerics import refuse_infinite_loss
from hookline.engine.runner import Runner
from hookline.errors import blame
from hookline.hooks.runtime_info import number_of
from hookline.plan.calls import failing_call
from hookline.plan.costs import Cost
from hookline.plan.hook import Hook
from hookline.strategies import pick_device

if TYPE_CHECKING:
    from hookline.engine.loop_specs import TrainLoop

# Those of hookline's default hooks whose work hooks of the dialect do.
LEFT_OUT = dict.fromkeys(("runtime_info", "timer", "logger", "param_scheduler", "checkpoint"))


class EngineRunner(Runner):
    """A Runner that trains for an engine, which it refers to weakly."""

    open_points = True
    way_out_of_nan = (
        "clip the gradients: optimizer_config=dict(grad_clip=dict(max_norm=1.0)), or see where it comes from: "
        "custom_hooks=[dict(type='AutogradAnomalyDetectHook')]"
    )


def runner_of(engine: Any, loop: TrainLoop) -> EngineRunner:
    """Put a run together out of an engine, its hooks and a loop."""
    parts = Parts(Path(engine.work_dir), pick_device(engine.device))
    hooks = [entry.hook for entry in engine.plan]
    for hook in hooks:
        if isinstance(hook, HookBase):
            hook._prepare(parts)
    runner = EngineRunner(
        engine.model,
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


def _optim(engine: Any, parts: Parts) -> HookedOptim:
    """The optimizer, as hooks want it."""
    accumulate = engine.gradient_accumulation_steps
    optim = HookedOptim(engine.optimizer, parts.schedulers, accumulate, keep_gradients=True)
    optim.clip, optim.scaler = parts.clip, parts.scaler
    optim.is_awaited = parts.updater is not None
    return optim


def _takes_images(hook: Any) -> bool:
    loggers = [hook, *getattr(hook, "loggers", ())]
    return any(isinstance(logger, LogBufferWriter) and logger.takes_images for logger in loggers)


def step_of(engine: Any) -> Any:
    """The native step: the engine computes the loss; OptimizerHook makes the update of it."""
    reference = weakref.ref(engine)

    def step(model: Any, batch: Any) -> Any:
        owner: Any = reference()
        owner.run_train_iter(batch, owner.data_time)
        output = owner.output
        return output["loss"] if len(output) == 1 and "loss" in output else output  # the loop's quickest way

    return step


class EngineState(Hook):
    """Keeps the counters of an engine as iMIX counts, and records what its step gives."""

    priority = "HIGHEST"

    def __init__(self, engine: Any) -> None:
        self._engine: Any = weakref.ref(engine)
        self._waiting = Cost()
        self._waited = 0.0

    @property
    def engine(self) -> Any:
        """The engine."""
        return self._engine()

    def around_run(self, runner: Any) -> Iterator[None]:
        """While it trains, its buffer is the current one."""
        engine = self.engine
        engine.exception = None
        engine.wrapped = runner.wrapped
        with engine.log_buffer:
            yield

    def before_train(self, runner: Any) -> None:
        """Where the run stands; from here on it is taken how long the loader is waited for."""
        self._count(runner)
        self._waiting = runner.measure_data_wait()
        self._waited = self._waiting.seconds
        engine = self.engine
        engine.start_iter, engine.start_epoch = runner.position.iter, runner.position.epoch

    def before_train_epoch(self, runner: Any) -> None:
        """An epoch begins."""
        self._count(runner)

    def before_train_iter(self, runner: Any, batch_idx: int) -> None:
        """An iteration begins."""
        engine, at = self._engine(), runner.position
        engine.iter, engine.epoch, engine.inner_iter = at.iter, at.epoch, batch_idx
        engine.log_buffer.iter = at.iter
        waited = self._waiting.seconds
        engine.data_time, self._waited = waited - self._waited, waited

    def after_train_iter(self, runner: Any, outputs: dict[str, Any]) -> None:
        """Every single number that the step gave."""
        engine = self._engine()
        put = engine.log_buffer.put_scalar
        put("data_time", engine.data_time)
        if runner.skipped:
            return
        for name, value in outputs.items():
            number = value if name == "loss" else number_of(value)  # the loss is one tensor, and the loop's own
            if number is not None:
                put(name, number)

    def after_train_epoch(self, runner: Any) -> None:
        """The iterations of the epoch are finished, and the epoch is not yet."""
        self.engine.iter = runner.position.iter

    def after_train(self, runner: Any) -> None:
        """All is finished. A loss that is not a number ends the run also where nobody has recorded it."""
        refuse_infinite_loss(runner)
        self.engine.iter, self.engine.has_begun = runner.position.iter, False

    def on_exception(self, runner: Any, error: BaseException) -> None:
        """Hooks that have begun may have something to end; what goes wrong there does not hide the error."""
        engine = self.engine
        engine.exception = error
        for entry in self._to_end(runner, error):
            try:
                entry.hook.after_train()
            except Exception as another:
                blame(error, f"then {entry.name} failed at after_train: {type(another).__name__}: {another}")

    def _to_end(self, runner: Any, error: BaseException) -> list[Any]:
        """The hooks whose `before_train` was done and whose `after_train` was not begun."""
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
        """What the log buffer knows besides its numbers."""
        engine = self.engine
        return engine.log_buffer.state_dict() if engine is not None else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.engine.log_buffer.load_state_dict(state)

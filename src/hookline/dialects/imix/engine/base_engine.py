"""EngineBase and CommonEngine: the engine that hooks see, and training by epochs or by iterations."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from hookline.dialects.imix.engine.forward import as_output, build_forward
from hookline.dialects.imix.engine.hooks.base_hook import POINTS, HookBase, PriorityStatus
from hookline.dialects.imix.engine.running import EngineRunner, runner_of, step_of
from hookline.engine.loop_specs import TrainLoop
from hookline.errors import ConfigError, HookError, HooklineError
from hookline.plan.plan import Plan
from hookline.runner.hook import Hook


class EngineBase:
    """The engine that hooks see as `self.trainer`, with its parts, its counters and the other hooks.

    A subclass provides `model`, `data_loader` and `optimizer` (None if its own hooks make the updates), and a
    `run_train_iter` that puts the losses into `self.output`. A native Runner does the training. It is built when
    training begins, and is then `self.runner`.
    """

    model: Any
    data_loader: Any
    optimizer: Any = None
    cfg: Any = None
    work_dir: Any = "./work_dirs"
    by_epoch = True
    max_iter: int | None = None
    max_epoch: int | None = None
    gradient_accumulation_steps = 1
    is_lr_accumulation = True
    imixed_precision = False
    log_period: int | None = None
    seed = 0
    device: Any = "auto"
    load_from: Any = None
    resume_from: Any = None
    experiment_name: str | None = None
    recorded_config: Any = None
    quiet = False

    def __init__(self) -> None:
        #: The hooks, checked and in order.
        self.plan = Plan(weakref.proxy(self), open=True)
        #: The native Runner; None until training begins.
        self.runner: EngineRunner | None = None
        #: The error that ended training, for hooks to read at `after_train`.
        self.exception: BaseException | None = None
        self.has_begun = False
        #: The current epoch, the current iteration, and the iteration within the epoch, as iMIX counts: from 0.
        self.epoch = self.iter = self.inner_iter = 0
        self.start_epoch = self.start_iter = 0
        #: The losses of the current iteration by name, and the output of the model.
        self.output: dict[str, Any] = {}
        self.model_output: Any = None
        #: The batch of a custom loop, for native hooks that take it.
        self.data_batch: Any = None
        #: How many seconds training waited for the current batch.
        self.data_time = 0.0
        #: The model as the engine calls it, with its wrapper; hooks see the bare model.
        self.wrapped: Any = None
        self.log_buffer: Any = None

    # -- hooks

    def register_hooks(self, engine_hooks: Iterable[Any]) -> None:
        """Add hooks. Hooks with the same level run in the order of registration. None is ignored."""
        for hook in engine_hooks:
            if hook is not None:
                self._register(hook)

    def _register(self, hook: Any, level: Any = None) -> None:
        name, source = type(hook).__name__, "class" if level is None else "config"
        if not isinstance(hook, (HookBase, Hook)):
            raise HookError(f"{name} is not a hook: it does not inherit from HookBase")
        if isinstance(hook, HookBase) and level is None:
            level = hook.level
        own = None if level is None else PriorityStatus.parse(level, name)
        if self.runner is not None and getattr(type(hook), "_prepare", HookBase._prepare) is not HookBase._prepare:
            raise HookError(f"{name} must be registered before training begins, because the run is built with it")
        for plan in [self.plan] if self.runner is None else [self.plan, self.runner.plan]:
            plan.add(hook, None if own is None else own.priority.value, priority_from=source)
        if isinstance(hook, HookBase):
            hook._level, hook.trainer = own, self
        if self.runner is not None and self.runner.running is not None:
            self.runner.plan.skip_idle_points(hook)

    @property
    def is_over(self) -> bool:
        """Return whether all iterations are finished."""
        return self.runner is not None and self.runner.train_loop.is_over(self.runner.position)

    @property
    def hooks(self) -> list[Any]:
        """Return the hooks in the order in which they run."""
        return [entry.hook for entry in self.plan]

    _hooks = hooks

    def call_hook(self, point: str, **arguments: Any) -> None:
        """Call the hook methods with this name. This is how custom points are called."""
        running = self.runner is not None and point in self.runner.plan.points
        (self.runner.plan if running else self.plan).call(point, arguments)  # type: ignore[union-attr]  # not None where running

    # -- the points, for a custom loop

    def before_train(self) -> None:
        """Call the hooks before training."""
        self.call_hook("before_train")

    def after_train(self) -> None:
        """Call the hooks after training."""
        self.call_hook("after_train")

    def before_train_epoch(self) -> None:
        """Call the hooks before an epoch."""
        self.call_hook("before_train_epoch")

    def after_train_epoch(self) -> None:
        """Call the hooks after an epoch."""
        self.call_hook("after_train_epoch")

    def before_train_iter(self) -> None:
        """Call the hooks before an iteration."""
        if self.log_buffer is not None:
            self.log_buffer.iter = self.iter
        self.call_hook("before_train_iter", batch_idx=self.inner_iter, data_batch=self.data_batch)

    def after_train_iter(self) -> None:
        """Call the hooks after an iteration, with its losses in `self.output`."""
        given = {"batch_idx": self.inner_iter, "data_batch": self.data_batch, "outputs": self.output}
        self.call_hook("after_train_iter", **given)

    # -- training

    def run_train_iter(self, batch_data: Any, data_time: float) -> None:
        """Compute the losses of one batch and put them into `self.output`, with the total as `loss`."""
        raise NotImplementedError(f"{type(self).__name__} must define run_train_iter(batch_data, data_time)")

    def train_by_epoch(self, start_epoch: int, max_epoch: int) -> None:
        """Train until `max_epoch` epochs are finished."""
        self._refuse_what_cannot_train()
        self.by_epoch, self.max_epoch = True, max_epoch
        self._train(TrainLoop(self.data_loader, step_of(self), max_epochs=max_epoch), start_epoch)

    def train_by_iter(self, start_iter: int, max_iter: int) -> None:
        """Train until `max_iter` iterations are finished, and iterate over the data as often as needed."""
        self._refuse_what_cannot_train()
        self.by_epoch, self.max_epoch = False, None
        self._train(TrainLoop(self.data_loader, step_of(self), max_iters=max_iter), start_iter)

    def _refuse_what_cannot_train(self) -> None:
        if self.runner is not None and self.runner.running is not None:
            raise HooklineError("the engine cannot start training: it is already training")
        for name in (*POINTS, "run_train_epoch"):
            if getattr(type(self), name, None) is not getattr(EngineBase, name, None):
                raise ConfigError(
                    f"{type(self).__name__} overrides {name}, which is never called: the loop is hookline's. Put the "
                    "code into a hook, and the code of a step into run_train_iter"
                )

    def _train(self, loop: TrainLoop, start: int) -> None:
        if self.runner is None:
            self.runner = runner_of(self, loop)
            if start:
                self._skip_to(self.runner, start)
        else:
            self.runner._host.replace_training(loop)  # continues at the current position
        self.max_iter = self.runner.max_iters
        self.runner.train()

    def _skip_to(self, runner: EngineRunner, start: int) -> None:
        """Skip the epochs or iterations that the caller declares finished."""
        at, length = runner.position, runner.train_loop.length
        if length is None:
            raise ConfigError("a start_epoch or start_iter above 0 needs a data_loader whose length is known")
        at.iter = start * length if self.by_epoch else start
        at.epoch, at.batch = (start, 0) if self.by_epoch else divmod(start, length)


class CommonEngine(EngineBase):
    """An engine that trains a model with a loss function.

    Args:
        model: Any module.
        data_loader: Yields the batches.
        optimizer: A torch optimizer. Without one, your own hooks must make the updates.
        loss_fn: Computes the losses from the output of the model; see `build_forward` for the arguments it may take.
        batch_processor: A function that takes the batch and returns the losses. It replaces the model call and
            `loss_fn`.
        work_dir: The folder of the run.
    """

    def __init__(
        self,
        model: nn.Module,
        data_loader: Iterable[Any],
        optimizer: Any = None,
        loss_fn: Callable[..., Any] | None = None,
        batch_processor: Callable[[Any], Any] | None = None,
        work_dir: str | Path = "./work_dirs",
    ) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise ConfigError(f"the model must be a torch.nn.Module, not a {type(model).__name__}")
        self.model = model
        self.data_loader = data_loader
        self.optimizer = optimizer
        self.loss_fn = loss_fn
        self.batch_processor = batch_processor
        self.work_dir = work_dir
        self.wrapped = model
        self._forward = build_forward(model, loss_fn)

    @property
    def prefix(self) -> str:
        """Return the prefix of checkpoint names."""
        return type(self.model).__name__

    def run_train_iter(self, batch_data: Any, data_time: float) -> None:
        """Call the model and compute the losses."""
        if self.batch_processor is not None:
            self.output = as_output(self.batch_processor(batch_data))
            return
        self.model_output, losses = self._forward(self, batch_data)
        self.output = {"loss": losses} if losses.__class__ is Tensor else as_output(losses)

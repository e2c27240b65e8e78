"""HookBasedTrainer: the training loop, on an `accelerate.Accelerator`."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.nn import Module

from hookline.common import forks
from hookline.common.modes import switch_mode
from hookline.dialects.errors import HookValueError, SettingValueError
from hookline.dialects.robo_orchard_core.utils.config import Config
from hookline.dialects.robo_orchard_core.utils.function_info import logger_of
from hookline.dialects.robo_orchard_lab.pipeline import checks, contents, folders, processes, saves
from hookline.dialects.robo_orchard_lab.pipeline.direct import is_plain
from hookline.dialects.robo_orchard_lab.pipeline.hooks.checkpoint import SaveCheckpoint, SavingHook
from hookline.dialects.robo_orchard_lab.pipeline.hooks.grad_clip import GradientClippingHook, GradientClippingHookConfig
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import (
    PipelineHookArgs,
    PipelineHooks,
    PipelineHooksConfig,
)
from hookline.dialects.robo_orchard_lab.pipeline.hooks.optimizer import OptimizerHook, OptimizerHookConfig
from hookline.dialects.robo_orchard_lab.pipeline.hooks.validation import ValidationHookConfig
from hookline.dialects.robo_orchard_lab.pipeline.host import (
    AcceleratorWindows,
    HookValidations,
    TrainerHost,
    TrainerStages,
)
from hookline.dialects.robo_orchard_lab.pipeline.log_terminal import LogTerminal
from hookline.dialects.robo_orchard_lab.pipeline.passes import Passes
from hookline.dialects.robo_orchard_lab.pipeline.progress import TrainerProgressState
from hookline.dialects.robo_orchard_lab.pipeline.records import StepRecords
from hookline.engine.driver import Driver
from hookline.engine.loops import end_if_signaled
from hookline.errors import blame
from hookline.lifecycle.session import refuse_inside_a_run, session, session_without_folder
from hookline.run.hints import Hints
from hookline.run.position import Current, Position
from hookline.run.requests import Requests
from hookline.state import hook_states
from hookline.state.loading import Loading

if TYPE_CHECKING:
    from accelerate import Accelerator  # type: ignore[import-untyped]
    from torch.optim import Optimizer

    from hookline.dialects.robo_orchard_lab.pipeline.batch_processor.mixin import BatchProcessorMixin

__all__ = [
    "GradientClippingHookConfig",
    "HookBasedTrainer",
    "PipelineHookOrConfigType",
    "ResumeCheckpointConfig",
    "TrainerProgressState",
    "ValidationHookConfig",
]

log = logger_of(__name__)

PipelineHookOrConfigType = PipelineHooksConfig[Any] | PipelineHooks


class ResumeCheckpointConfig(Config):
    """The checkpoint to resume from. A folder of checkpoints or the project folder means its newest intact checkpoint.

    `cache_dir` and `safe_serialization` have no effect. They are for checkpoints on servers, which are not downloaded;
    copy them to this machine first.
    """

    resume_from: str
    cache_dir: str | None = None
    safe_serialization: bool = True

    def find(self) -> Path:
        """Return the folder of the checkpoint; log a warning for every checkpoint that is skipped."""
        if "://" in self.resume_from:
            raise SettingValueError(
                f"resume_from must be a folder, not {self.resume_from!r}; copy it to this machine first"
            )
        where = Path(self.resume_from).expanduser()
        return folders.find(where, lambda text: log.warning("skipped: %s", text))

    def load_state(self, accelerator: Accelerator) -> None:
        """Load accelerate's part of the checkpoint."""
        contents.load_accelerator(accelerator, self.find())


class StepDriver(Driver):
    """Follows the steps of a trainer. It also writes the records that are due."""

    host: HookBasedTrainer

    def _look(self) -> None:
        super()._look()
        trainer, records = self.host, self.host.records
        vars(trainer._common)["_measured"] = self.plan.is_sampling
        if self.position.iter == records.due:
            records.write(trainer._loss)
        self._next_look = min(self._next_look, records.due)


class HookBasedTrainer(TrainerHost):
    """Trains a model, with hooks at the channels of the pipeline.

    Args:
        accelerator: Prepares all parts and distributes the work.
        model: The model.
        dataloader: An iterable of batches.
        batch_processor: Runs the forward and backward pass of a batch.
        optimizer: The optimizer. It steps at the end of `on_step`, before the user's hooks.
        lr_scheduler: The scheduler, which steps after the optimizer; or None.
        hooks: Hooks or their configs, one or several. They run in this order, after the trainer's own hooks.
        max_step: The number of steps to train.
        max_epoch: The number of epochs to train. With both limits, the one that is reached first counts.
        grad_clip: The config for clipping gradients before the optimizer's step.
        validation: The config for evaluating at an interval.
        resume_from: The checkpoint to resume from.
    """

    #: The loss of the newest step.
    _loss: Any = None

    def __init__(
        self,
        accelerator: Accelerator,
        model: Any,
        dataloader: Iterable[Any],
        batch_processor: BatchProcessorMixin,
        optimizer: Optimizer,
        lr_scheduler: Any = None,
        hooks: PipelineHookOrConfigType | Iterable[PipelineHookOrConfigType] | None = None,
        max_step: int | None = None,
        max_epoch: int | None = None,
        grad_clip: GradientClippingHookConfig | None = None,
        validation: ValidationHookConfig | None = None,
        resume_from: ResumeCheckpointConfig | None = None,
    ) -> None:
        checks.check_limits(max_step, max_epoch)
        checks.check_parts(accelerator, model, dataloader, optimizer, lr_scheduler)
        checks.check_processor(batch_processor)
        checks.check_config("grad_clip", grad_clip, GradientClippingHookConfig, PipelineHooksConfig)
        checks.check_config("validation", validation, ValidationHookConfig, PipelineHooksConfig)
        checks.check_config("resume_from", resume_from, ResumeCheckpointConfig, ResumeCheckpointConfig)
        _warn_of_other_parameters(model, batch_processor, optimizer)
        self.accelerator, self.hints = accelerator, Hints(unit="step")
        self.batch_processor = batch_processor
        self.max_step = max_step
        self.max_epoch = max_epoch
        self.plan, self.hooks = PipelineHooks.of_host(self)
        #: The channel around the optimizer's step.
        self.on_update = self.hooks.hooks["on_optimizer_step"]
        for own in (grad_clip, OptimizerHookConfig(), validation):
            if own is not None:
                self.hooks += own()
        self.hooks += PipelineHooks.from_hooks(hooks)
        self._check_hooks()
        self.dataloader, self.model, self.optimizer, self.lr_scheduler = accelerator.prepare(
            dataloader, model, optimizer, lr_scheduler
        )
        if hasattr(batch_processor, "prepare"):  # after the model, because accelerate must save the model first
            batch_processor.prepare(accelerator)
        self.passes = Passes(dataloader, self.dataloader, accelerator)
        self.trainer_progress_state = TrainerProgressState()
        self.has_ended = False
        #: The position in the data. A pass that `max_step` cut off is not finished, although hooks see the next epoch.
        self.position, self.current = Position(), Current()
        self.terminal = LogTerminal(quiet=not accelerator.is_main_process)
        self.strategy, self.requests = processes.strategy_of(accelerator), Requests()
        self.saving, self.loading = saves.FolderSaving(self), Loading(self)
        self.start = saves.FolderStart(self)
        self.records = StepRecords(self)
        #: The checkpoint that this trainer has resumed from.
        self.resumed: Path | None = None
        self.targets = []
        self.contents, self.stages = contents.TrainerContents(self), TrainerStages(self)
        self.windows, self.evaluation = AcceleratorWindows(self), HookValidations(self)
        if resume_from is not None:
            self._resume(resume_from)
        self._start_epoch = self.trainer_progress_state.epoch_id
        self._start_step = self.trainer_progress_state.step_id

    # -- before training

    def _check_hooks(self) -> None:
        """Refuse hooks that would step or clip twice, or clip gradients after they were cleared."""
        members = list(self.hooks.members())
        if sum(isinstance(hook, OptimizerHook) for hook in members) > 1:
            raise HookValueError(
                "the trainer already has an OptimizerHook, and a second one would make every step twice; remove yours"
            )
        clips = [number for number, hook in enumerate(members) if isinstance(hook, GradientClippingHook)]
        steps = next((number for number, hook in enumerate(members) if isinstance(hook, OptimizerHook)), len(members))
        if len(clips) > 1 or any(number > steps for number in clips):
            raise HookValueError(
                "a GradientClippingHook in hooks would run after the optimizer's step, when the gradients are already "
                "cleared; pass its config to the trainer instead: grad_clip=GradientClippingHookConfig(...)"
            )

    def _resume(self, resume_from: ResumeCheckpointConfig) -> None:
        folder = resume_from.find()
        state = contents.read_state(folder, self.accelerator)
        contents.load_accelerator(self.accelerator, folder)
        self.position.load_state_dict(state["position"])
        self._set_counters()
        self.passes.seed = int(state["seed"])
        if state.get("batches") != self.passes.length:
            had, has = state.get("batches"), self.passes.length
            log.warning("an epoch had %s batches when %s was saved, but now it has %s", had, folder, has)
        self.resumed = self.start.contract.choices.resume = self.loading.source = folder
        self.loading.pending = state
        log.info("resumed from %s: epoch %d, step %d", folder, self.position.epoch, self.position.batch)

    def _set_counters(self) -> None:
        """Set the counters of the hooks to the position in the data. An epoch that `max_step` cut off continues."""
        progress, position = self.trainer_progress_state, self.position
        progress.epoch_id, progress.step_id, progress.global_step_id = position.epoch, position.batch, position.iter

    def _restore_early(self) -> None:
        """Restore the states of hooks early, for their befores of the loop and of the epoch.

        The states are restored a second time where training continues, because a hook may count in a before. A hook
        that cannot load its state yet gets it only then.
        """
        states = (self.loading.pending or {}).get("hooks", {})
        for name, hook in contents.find_stateful(self.hooks):
            if name in states:
                with contextlib.suppress(Exception):
                    hook.load_state_dict(copy.deepcopy(states[name]))

    def _restore(self) -> None:
        """Restore the states of the hooks and the random generators, where a resumed run continues."""
        if self.loading.restore():
            self.records.measure()

    # -- training

    def __call__(self) -> None:
        """Train. A second call continues at the step that failed, or, with larger limits, where training ended."""
        refuse_inside_a_run(self, "train")
        self._check_hooks()
        position = self.position
        done = TrainerProgressState(position.epoch, position.batch, position.iter)
        if done.is_training_end(self.max_step, self.max_epoch):
            log.warning("training is already complete: %s", self.trainer_progress_state)
            return
        self._set_counters()
        hooks = [hook for hook in self.hooks.members() if isinstance(hook, SavingHook)]
        self.targets = list(dict.fromkeys(hook.target(self.accelerator) for hook in hooks))
        if hooks:
            contents.refuse_unreadable(self.accelerator)
            hook_states.check_states_can_be_saved(contents.find_stateful(self.hooks))
        with self.saving.locks(), self._session():
            self._common, self._plain = self._common_args(), is_plain(self.accelerator)
            self.optimizer.zero_grad()
            contents.restore_open_gradients(self.accelerator, (self.loading.pending or {}).get("gradients"))
            switch_mode(self.model, training=True)
            self._restore_early()
            self.has_ended = False
            self.records.measure()
            self._loop()

    def _session(self) -> AbstractContextManager[None]:
        return (session if self.folders else session_without_folder)(self, "train", self.start, self.stages)

    def _loop(self) -> None:
        args, driver, progress = self.arguments(), StepDriver(self, self.max_step), self.trainer_progress_state
        with self.hooks.hooks["on_loop"].around(args):
            if self.position.batch == 0:
                self._restore()
            while not progress.is_training_end(self.max_step, self.max_epoch) and not self.requests.stopped:
                try:
                    self._epoch(driver)
                finally:
                    vars(args).update(vars(progress))
        self.has_ended = True  # if training ends inside an accumulation window, its checkpoint holds those gradients
        driver.handle_requests()

    def _epoch(self, driver: StepDriver) -> None:
        position, progress, args, finished = self.position, self.trainer_progress_state, self.arguments(), True
        with self.hooks.hooks["on_epoch"].around(args):
            try:
                waiting = self.plan.ledger.parts["data"]
                batches = self.passes.begin(position.epoch, position.batch, partial(end_if_signaled, self), waiting)
                self._restore()
                for batch in batches:
                    self._step(batch)
                    progress.step_id += 1
                    progress.global_step_id += 1
                    position.batch += 1
                    position.iter += 1
                    if driver.after_iteration():
                        finished = position.batch == self.passes.length
                        break
                self.records.write(self._loss)
            finally:
                vars(args).update(vars(progress))
                self.passes.end()
        progress.update_epoch()
        if finished:
            position.epoch, position.batch = position.epoch + 1, 0
        driver.handle_requests()

    def _step(self, batch: Any) -> None:
        try:
            window = self.accelerator.gradient_state
            if window.num_steps == 1 and window.sync_gradients:
                self._process(batch, self._plain)
            else:
                with self.accelerator.accumulate(self.model):
                    self._process(batch, direct=False)
        except BaseException as error:
            forks.end_if_copy(self, error)
            at = self.trainer_progress_state
            blame(error, f"in epoch_id={at.epoch_id} step_id={at.step_id} global_step_id={at.global_step_id}")
            raise

    def _process(self, batch: Any, direct: bool) -> None:
        args, hooks = self.arguments(), self.hooks
        own, channels = args.__dict__, hooks.hooks
        own["_direct"] = direct
        with channels["on_step"].around(args):
            on_batch = channels["on_batch"]
            if on_batch.entries:
                inner = args.copy_with_updates(batch=batch)
                with on_batch.around(inner):
                    self.batch_processor(pipeline_hooks=hooks, on_batch_hook_args=inner, model=self.model)
                args.model_outputs, args.reduce_loss = inner.model_outputs, inner.reduce_loss
            else:  # without hooks at on_batch, no copy of the arguments is needed
                args.batch = batch
                try:
                    self.batch_processor(pipeline_hooks=hooks, on_batch_hook_args=args, model=self.model)
                finally:
                    args.batch = None
            own["_processed"] = True
        self._loss = args.reduce_loss

    def request_checkpoints(self) -> None:
        """Let every hook that saves checkpoints request one."""
        for hook in self.hooks.members():
            if isinstance(hook, SaveCheckpoint):
                hook.save(self.arguments(), f"step {self.position.iter - 1}")

    def _common_args(self) -> PipelineHookArgs:
        """Return the arguments of hooks that are the same for all calls."""
        args = PipelineHookArgs(
            accelerator=self.accelerator,
            max_epoch=self.max_epoch,
            max_step=self.max_step,
            start_epoch=self._start_epoch,
            start_step=self._start_step,
            dataloader=self.dataloader,
            model=self.model,
            optimizer=self.optimizer,
            lr_scheduler=self.lr_scheduler,
        )
        vars(args)["_trainer"] = self
        return args

    def arguments(self) -> PipelineHookArgs:
        """Return the arguments of hooks for one pass through a channel."""
        args = object.__new__(PipelineHookArgs)
        args.__dict__ = {**self._common.__dict__, **self.trainer_progress_state.__dict__}
        return args


def _warn_of_other_parameters(model: Any, processor: Any, optimizer: Any) -> None:
    """Warn if the optimizer has the parameters of another model, or of a model that was copied later."""
    groups = getattr(optimizer, "param_groups", ())  # an engine such as DeepSpeed creates them later
    parts = [part for part in getattr(processor, "__dict__", {}).values() if isinstance(part, Module)]
    known = {id(parameter) for part in (model, *parts) for parameter in part.parameters()}
    if groups and not any(id(parameter) in known for group in groups for parameter in group["params"]):
        log.warning(
            "no parameter of the %s belongs to the model (%s), so training will not change the model; create the "
            "optimizer with the parameters of the model that you pass to the trainer",
            type(optimizer).__name__,
            type(model).__name__,
        )

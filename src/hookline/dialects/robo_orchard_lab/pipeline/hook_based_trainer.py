"""HookBasedTrainer: the training loop, on an `accelerate.Accelerator`."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.nn import Module

from hookline.common import rng
from hookline.dialects.robo_orchard_core.refusals import HookValueError, SettingValueError
from hookline.dialects.robo_orchard_core.utils.config import Config
from hookline.dialects.robo_orchard_core.utils.function_info import known_as
from hookline.dialects.robo_orchard_lab.pipeline import checks, contents, folders, saves
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
from hookline.dialects.robo_orchard_lab.pipeline.passes import Passes
from hookline.dialects.robo_orchard_lab.pipeline.progress import Place, TrainerProgressState
from hookline.engine import hook_states
from hookline.engine.host import Host
from hookline.engine.loops import handle_requests
from hookline.engine.position import Position
from hookline.engine.requests import Requests
from hookline.errors import blame
from hookline.plan.plan import Plan
from hookline.screen.terminal import Terminal
from hookline.strategies import Single

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

log = logging.getLogger(known_as(__name__))

PipelineHookOrConfigType = PipelineHooksConfig[Any] | PipelineHooks


class ResumeCheckpointConfig(Config):
    """What to go on from: a checkpoint, or a folder of them (also the project's), of which the newest intact is taken.

    `cache_dir` and `safe_serialization` are about checkpoints on servers, which are not fetched; copy them first.
    """

    resume_from: str
    cache_dir: str | None = None
    safe_serialization: bool = True

    def find(self) -> Path:
        """The folder of the checkpoint; every one that is passed over is said."""
        if "://" in self.resume_from:
            raise SettingValueError(f"resume_from is a folder, not {self.resume_from!r}; copy it to this machine first")
        where = Path(self.resume_from).expanduser()
        return folders.find(where, lambda text: log.warning("passed over: %s", text))

    def load_state(self, accelerator: Accelerator) -> None:
        """Give accelerate its part of the checkpoint."""
        contents.load_accelerator(accelerator, self.find())


class HookBasedTrainer(Host):
    """Trains a model, with hooks at the channels of the pipeline.

    Args:
        accelerator: Prepares and shares out all parts.
        model: The model.
        dataloader: Gives the batches.
        batch_processor: Does forward and backward of a batch.
        optimizer: Stepped when a step is left, before the hooks of the user.
        lr_scheduler: Stepped after it; or none.
        hooks: Hooks or their configs, one or several; they run in this order, behind the trainer's own.
        max_step: Train this many steps, or
        max_epoch: this many epochs; with both, whatever comes first.
        grad_clip: Clips gradients before the optimizer's step.
        validation: Evaluates every so often.
        resume_from: Go on from a checkpoint.
    """

    saving: saves.FolderSaving

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
        self.accelerator = accelerator
        self.batch_processor = batch_processor
        self.max_step = max_step
        self.max_epoch = max_epoch
        self.hooks = PipelineHooks()
        for own in (grad_clip, OptimizerHookConfig(), validation):
            if own is not None:
                self.hooks += own()
        self.hooks += PipelineHooks.from_hooks(hooks)
        self._check_hooks()
        self.dataloader, self.model, self.optimizer, self.lr_scheduler = accelerator.prepare(
            dataloader, model, optimizer, lr_scheduler
        )
        if hasattr(batch_processor, "prepare"):  # after the model, which is the first one in what accelerate saves
            batch_processor.prepare(accelerator)
        self.passes = Passes(dataloader, self.dataloader, accelerator)
        self.trainer_progress_state = TrainerProgressState()
        #: Whether the loop is over.
        self._ended = False
        #: Where in the data the training is.
        self.place = Place()
        self.terminal, self.strategy, self.requests = Terminal(), Single(), Requests()
        self.plan = Plan(self, table={}, scopes={})
        self.saving = saves.FolderSaving(self)
        self._resumed: Path | None = None
        #: What hooks and generators take back when training has come to the place of the checkpoint.
        self._pending: dict[str, Any] | None = None
        if resume_from is not None:
            self._resume(resume_from)
        self._start_epoch = self.trainer_progress_state.epoch_id
        self._start_step = self.trainer_progress_state.step_id

    # -- before training

    def _check_hooks(self) -> None:
        """Refuse what would step or clip twice, or clip gradients that are gone."""
        members = list(self.hooks.members())
        if sum(isinstance(hook, OptimizerHook) for hook in members) > 1:
            raise HookValueError("the trainer has an OptimizerHook by itself; a second one would make every step twice")
        clips = [number for number, hook in enumerate(members) if isinstance(hook, GradientClippingHook)]
        steps = next((number for number, hook in enumerate(members) if isinstance(hook, OptimizerHook)), len(members))
        if len(clips) > 1 or any(number > steps for number in clips):
            raise HookValueError(
                "a GradientClippingHook among the hooks would come after the optimizer's step, when the gradients are "
                "gone; give its config to the trainer: grad_clip=GradientClippingHookConfig(...)"
            )

    def _resume(self, resume_from: ResumeCheckpointConfig) -> None:
        folder = resume_from.find()
        state = contents.read_state(folder, self.accelerator)
        contents.load_accelerator(self.accelerator, folder)
        self.place.load_state_dict(state["place"])
        self._count_from_place()
        self.passes.seed = int(state["seed"])
        if state.get("batches") != self.passes.length:
            had, has = state.get("batches"), self.passes.length
            log.warning("an epoch had %s batches when %s was saved, and has %s now", had, folder, has)
        self._resumed, self._pending = folder, state
        log.info("resumed from %s: epoch %d, step %d", folder, self.place.epoch, self.place.batch)

    def _count_from_place(self) -> None:
        """Hooks are told the place in the data; an epoch that `max_step` had cut goes on."""
        progress, place = self.trainer_progress_state, self.place
        progress.epoch_id, progress.step_id, progress.global_step_id = place.epoch, place.batch, place.step

    def _restore_early(self) -> None:
        """Give the hooks their states for what they do when the loop and the epoch begin.

        They get them once more where training goes on, since they may count in a before; one that cannot take its state
        yet, gets it only then.
        """
        states = {} if self._pending is None else self._pending["hooks"]
        for name, hook in contents.stateful(self.hooks):
            if name in states:
                with contextlib.suppress(Exception):
                    hook.load_state_dict(copy.deepcopy(states[name]))

    def _restore(self) -> None:
        """Give the hooks and, last, since they may draw, the generators their states."""
        state, self._pending = self._pending, None
        if state is None:
            return
        hook_states.restore(contents.stateful(self.hooks), state["hooks"], state["hook_names"], log.warning)
        if "rng" in state:
            rng.restore(state["rng"])

    # -- training

    def __call__(self) -> None:
        """Train; a second call goes on: with the step that failed, or, with greater limits, where training ended."""
        self._check_hooks()
        place = self.place
        if TrainerProgressState(place.epoch, place.batch, place.step).is_training_end(self.max_step, self.max_epoch):
            log.warning("there is nothing left to train: %s", self.trainer_progress_state)
            return
        self._count_from_place()
        hooks = [hook for hook in self.hooks.members() if isinstance(hook, SavingHook)]
        targets = list(dict.fromkeys(hook.target(self.accelerator) for hook in hooks))
        if hooks:
            contents.refuse_unreadable(self.accelerator)
            hook_states.check_states_can_be_saved(contents.stateful(self.hooks))
        with self.saving.session(targets, self._resumed):
            self._common, self._plain = self._common_args(), is_plain(self.accelerator)
            self.optimizer.zero_grad()
            if self._pending is not None:
                contents.reopen_gradients(self.accelerator, self._pending.get("gradients"))
            if not self.model.training:  # a model that trains keeps parts that were frozen on purpose
                self.model.train()
            self._restore_early()
            self._ended = False
            self._loop()

    def _loop(self) -> None:
        args = self._args()
        with self.hooks.hooks["on_loop"].around(args):
            if self.place.batch == 0:
                self._restore()
            while not self._is_end():
                try:
                    self._epoch()
                finally:
                    vars(args).update(vars(self.trainer_progress_state))
        self._ended = True  # a training that ends inside of a window has those gradients in its checkpoint
        if self.requests.pending:
            handle_requests(self)

    def _epoch(self) -> None:
        place, progress = self.place, self.trainer_progress_state
        args, finished = self._args(), True
        with self.hooks.hooks["on_epoch"].around(args):
            try:
                batches = self.passes.begin(place.epoch, place.batch, self.saving.end_if_signaled)
                self._restore()
                for batch in batches:
                    self._step(batch)
                    progress.update_step()
                    place.batch += 1
                    place.step += 1
                    if self.requests.pending:
                        handle_requests(self)
                    if place.step == self.max_step:
                        finished = place.batch == self.passes.length
                        break
            finally:
                vars(args).update(vars(progress))
                self.passes.end()
        progress.update_epoch()
        if finished:
            place.epoch, place.batch = place.epoch + 1, 0
        if self.requests.pending:
            handle_requests(self)

    def _step(self, batch: Any) -> None:
        try:
            window = self.accelerator.gradient_state
            if window.num_steps == 1 and window.sync_gradients:
                self._process(batch, self._plain)
            else:
                with self.accelerator.accumulate(self.model):
                    self._process(batch, direct=False)
        except BaseException as error:
            at = self.trainer_progress_state
            blame(error, f"in epoch_id={at.epoch_id} step_id={at.step_id} global_step_id={at.global_step_id}")
            raise

    def _process(self, batch: Any, direct: bool) -> None:
        args, hooks = self._args(), self.hooks
        args.__dict__["_direct"] = direct
        with hooks.hooks["on_step"].around(args):
            on_batch = hooks.hooks["on_batch"]
            if on_batch.entries:
                inner = args.copy_with_updates(batch=batch)
                with on_batch.around(inner):
                    self.batch_processor(pipeline_hooks=hooks, on_batch_hook_args=inner, model=self.model)
                args.model_outputs, args.reduce_loss = inner.model_outputs, inner.reduce_loss
            else:  # nobody is there, so the arguments of the step will do
                args.batch = batch
                try:
                    self.batch_processor(pipeline_hooks=hooks, on_batch_hook_args=args, model=self.model)
                finally:
                    args.batch = None

    # -- as a host; see `hookline.engine.host`

    @property
    def position(self) -> Position:  # type: ignore[override]  # known here as the place in the data
        """Return the counters."""
        place = self.place
        return Position(place.epoch, place.step, place.batch)

    @property
    def progress_text(self) -> str:
        """Return how far the run is, for messages."""
        return f"step {self.place.step}"

    @property
    def catches_signals(self) -> bool:  # type: ignore[override]
        """Return whether signals become requests: several processes would not see one at the same step."""
        return bool(self.accelerator.num_processes == 1)

    @property
    def accumulating(self) -> bool:
        """Return whether gradients are being accumulated, and training continues."""
        return not self._ended and not self.accelerator.sync_gradients

    def while_accumulating(self) -> None:
        """Write requested models; checkpoints wait."""
        if any(map(saves.is_model, self.requests.saves)):
            self.saving.save_models()

    def report(self, text: str) -> None:
        """Log a line."""
        log.warning("%s", text)

    def ask_for_checkpoints(self) -> None:
        """Let every hook that saves checkpoints ask for one."""
        for hook in self.hooks.members():
            if isinstance(hook, SaveCheckpoint):
                hook.save(self._args(), f"step {self.place.step - 1}")

    def _is_end(self) -> bool:
        return self.trainer_progress_state.is_training_end(self.max_step, self.max_epoch)

    def _common_args(self) -> PipelineHookArgs:
        """What hooks get on every passage through a channel."""
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
        vars(args)["_saves"] = self.saving
        return args

    def _args(self) -> PipelineHookArgs:
        """What the hooks of a channel get on one passage."""
        args = self._common.copy()
        args.__dict__.update(self.trainer_progress_state.__dict__)
        return args


def _warn_of_other_parameters(model: Any, processor: Any, optimizer: Any) -> None:
    """Say that an optimizer trains something else: the parameters of another model, or of one that was copied."""
    groups = getattr(optimizer, "param_groups", ())  # an engine of accelerate's makes them later
    parts = [part for part in getattr(processor, "__dict__", {}).values() if isinstance(part, Module)]
    known = {id(parameter) for part in (model, *parts) for parameter in part.parameters()}
    if groups and not any(id(parameter) in known for group in groups for parameter in group["params"]):
        log.warning(
            "no parameter of the %s belongs to the model (%s), so training will not change it; make the optimizer with "
            "the parameters of the model that the trainer is given",
            type(optimizer).__name__,
            type(model).__name__,
        )

"""HooklineCallback: hookline inside Lightning.

from hookline.integrations.lightning import HooklineCallback

trainer = Trainer(callbacks=[HooklineCallback(hooks=[GradNormHook()], work_dir="runs/mine")])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

from hookline.errors import ConfigError
from hookline.integrations.callback import GuestCallback
from hookline.integrations.guest import as_metrics
from hookline.integrations.refusals import Engine

if TYPE_CHECKING:
    from torch import Tensor

try:
    from lightning.pytorch import Callback
except ImportError as missing:
    raise ConfigError(
        "hookline.integrations.lightning needs lightning, which is not installed: pip install lightning"
    ) from missing

#: The version that hookline is tested with.
TESTED = "2.6.6"

#: What to use in Lightning instead of a hook.
INSTEAD = {
    "CheckInvalidLossHook": "policy: raise, or Trainer(detect_anomaly=True)",
    "DistSamplerSeedHook": "Trainer(use_distributed_sampler=True)",
    "EMAHook": "the callback EMAWeightAveraging of Lightning",
    "FreezeHook": "the callback BaseFinetuning of Lightning",
    "GradClipHook": "Trainer(gradient_clip_val=...)",
    "ParamSchedulerHook": "configure_optimizers of the module",
    "ProgressHook": "the progress bar of Lightning",
    "SyncBuffersHook": "Trainer(sync_batchnorm=True)",
}
ENGINE = Engine("Lightning", TESTED, instead=INSTEAD)


def _do_nothing() -> None:
    """Do nothing. A function without a name could not be sent to processes that Lightning spawns."""


class HooklineCallback(GuestCallback, Callback):
    """Runs hooks inside a training of Lightning, which stays the same, bit by bit.

    It writes the folder of a run: records, hook costs, the report. A hook that would change training is refused here.
    """

    _engine = ENGINE
    #: The metrics before the validation that is running.
    _before: dict[str, Any]
    #: The loss that `training_step` has returned; None while it computes, and with manual optimization.
    _loss: Tensor | None = None
    #: Ends the watch of the step.
    _unwatch: Callable[[], None] = staticmethod(_do_nothing)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Refuse a second trainer."""
        self._guest.belong_to(trainer)

    # -- training

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Open the folder, and call the first points."""
        batches = trainer.num_training_batches
        length = None if math.isinf(batches) else int(batches)
        max_epochs, max_iters = _length_of(trainer, length)
        self._guest.begin(
            pl_module,
            trainer.optimizers,
            length=length,
            max_epochs=max_epochs,
            max_iters=max_iters,
            accumulate=trainer.accumulate_grad_batches,
            validates=bool(trainer.enable_validation),
            tells_begin=True,
            at=(trainer.current_epoch, trainer.fit_loop.epoch_loop.total_batch_idx + 1),
        )
        self._unwatch = self._watch_step(pl_module)

    def _watch_step(self, pl_module: Any) -> Callable[[], None]:
        """Note the losses of the module: with accumulation, callbacks see only a fraction, which is rounded.

        Accumulation may begin in a later epoch. Return a function that ends this.
        """
        step, own = pl_module.training_step, vars(pl_module).get("training_step")

        @wraps(step)
        def watched(*arguments: Any, **options: Any) -> Any:
            self._loss = None
            outputs = step(*arguments, **options)
            self._loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
            return outputs

        def unwatch() -> None:
            if own is None:
                del pl_module.training_step
            else:
                pl_module.training_step = own
            self._loss, self._unwatch = None, _do_nothing

        pl_module.training_step = watched
        return unwatch

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin a pass over the data."""
        self._guest.begin_epoch()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Begin an iteration."""
        self._guest.begin_step(batch, trainer.fit_loop.epoch_loop.batch_progress.is_last_batch)

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """Show the loss to hooks."""
        self._guest.take_loss(loss if self._loss is None else self._loss)

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """End a backward pass."""
        self._guest.end_backward()

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Begin a step of an optimizer. The gradients are complete, and not clipped."""
        self._guest.begin_update(getattr(optimizer, "optimizer", optimizer))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End an iteration with the outputs of `training_step`."""
        shown = dict(outputs) if isinstance(outputs, Mapping) else None
        if shown is not None and self._loss is not None:
            shown["loss"] = self._loss
        self._guest.end_step(shown)
        self._pass_on_stop(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """End a pass over the data, unless the validation after it has done that."""
        self._guest.end_epoch()
        self._pass_on_stop(trainer)

    def _pass_on_stop(self, trainer: Any) -> None:
        if self._guest.stopped:
            trainer.should_stop = True

    # -- validation

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin a validation. Lightning validates before it ends the epoch."""
        if not trainer.sanity_checking:
            self._before = dict(trainer.callback_metrics)
            self._guest.begin_validation(trainer.fit_loop.epoch_loop.batch_progress.is_last_batch)

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Begin a batch of a validation."""
        self._guest.begin_validation_step(batch_idx, batch)

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """End a batch with the outputs of `validation_step`."""
        self._guest.end_validation_step(outputs)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """End a validation with the metrics that it has logged: the values that are new since it began."""
        if self._guest.is_validating:
            now = trainer.callback_metrics
            fresh = {name: value for name, value in now.items() if value is not self._before.get(name)}
            self._guest.end_validation(as_metrics(fresh, "val"))
            self._pass_on_stop(trainer)

    # -- the end

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Call the last points, and write the report."""
        self._unwatch()
        self._guest.finish()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the run with a failure."""
        self._unwatch()
        self._guest.fail(exception)


def _length_of(trainer: Any, length: int | None) -> tuple[int | None, int | None]:
    """Return the length of a training in epochs, or, if that is unknown, in batches."""
    epochs = trainer.max_epochs if (trainer.max_epochs or 0) > 0 else 10**9  # it ends when something stops it
    if trainer.max_steps <= 0:
        return epochs, None
    if length is None:
        return None, trainer.max_steps * trainer.accumulate_grad_batches
    return min(epochs, math.ceil(trainer.max_steps / math.ceil(length / trainer.accumulate_grad_batches))), None

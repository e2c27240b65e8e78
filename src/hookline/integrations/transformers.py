"""HooklineCallback: hookline inside the Trainer of Transformers.

    from hookline.integrations.transformers import HooklineCallback

    trainer = Trainer(..., callbacks=[HooklineCallback(hooks=["StatsMonitorHook"], work_dir="runs/mine")])

The callbacks of Transformers see neither batches nor losses, so the model itself is watched: its arguments are the
batch, and the loss in its outputs is the loss. There is no callback for a failure, either: see `close`.
"""

from __future__ import annotations

import atexit
import math
import sys
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from hookline.errors import ConfigError, HooklineError
from hookline.integrations.callback import GuestCallback
from hookline.integrations.guest import as_metrics
from hookline.integrations.refusals import Engine

try:
    from transformers import TrainerCallback
except ImportError as missing:
    raise ConfigError(
        "hookline.integrations.transformers needs transformers, which is not installed: pip install "
        "'transformers[torch]'"
    ) from missing

#: The version that hookline is tested with.
TESTED = "5.23.0"

#: Why more hooks cannot be used here than in other engines.
REASONS = {
    "RankTimesHook": "Transformers has no callback before a forward pass",
    "VisualizationHook": "Transformers shows no batches of a validation to callbacks",
}
#: What to use in Transformers instead of a hook.
INSTEAD = {
    "CheckInvalidLossHook": "policy: raise",
    "EMAHook": "a TrainerCallback that evaluates the averaged weights itself",
    "FreezeHook": "requires_grad_(False) before training",
    "GradClipHook": "TrainingArguments(max_grad_norm=...)",
    "ParamSchedulerHook": "TrainingArguments(lr_scheduler_type=...)",
    "ProgressHook": "the progress bar of Transformers",
    "VisualizationHook": "compute_metrics of the Trainer",
}
#: Why points are never called.
UNREACHED = dict.fromkeys(
    ("before_val_iter", "after_val_iter", "around_val_iter"),
    "it shows no batches of a validation to callbacks; use compute_metrics of the Trainer",
)
ENGINE = Engine("Transformers", TESTED, REASONS, INSTEAD, UNREACHED)
#: Entries of the metrics of an evaluation that are no metrics of the model.
NO_METRICS = frozenset(
    ("epoch", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second", "eval_model_preparation_time")
)


class HooklineCallback(GuestCallback, TrainerCallback):
    """Runs hooks inside a training of Transformers, which stays the same, bit by bit.

    It writes the folder of a run: records, hook costs, the report. A hook that would change training is refused here.
    """

    _engine = ENGINE
    _handles: Iterable[Any] = ()
    _length: int | None = None
    #: True from the beginning of a step of the Trainer to its end: validations are outside.
    _in_window = False
    _in_iteration = False
    #: The batches of the current optimizer step, in all processes. A model that is told the number of tokens in all of
    #: them returns its share of their mean: then the loss is divided by them.
    _shares = _divided_by = 1
    #: True once the model has returned a loss, or it was reported that it returns none.
    _knows_loss = False

    def on_init_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Refuse a second trainer. Each one has its own control."""
        self._guest.belong_to(control)

    # -- training

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Open the folder, and call the first points."""
        self.close()
        _callbacks.add(self)
        self._guest.belong_to(control)
        self._refuse_clipped_norms(args)
        if args.torch_compile:
            raise ConfigError(
                "HooklineCallback watches the calls of the model, which torch_compile=True compiles; remove it"
            )
        model, optimizer, loader = parts["model"], parts["optimizer"], parts["train_dataloader"]
        self._length = _length_of(loader)
        by_epochs = self._length is not None or args.max_steps <= 0
        self._guest.begin(
            model,
            [getattr(optimizer, "optimizer", optimizer)],
            length=self._length,
            max_epochs=math.ceil(state.num_train_epochs) if by_epochs else None,
            max_iters=None if by_epochs else args.max_steps * args.gradient_accumulation_steps,
            accumulate=args.gradient_accumulation_steps,
            validates=parts["eval_dataloader"] is not None or args.eval_strategy != "no",
            tells_begin=False,
            at=_position_of(state, self._length, args.gradient_accumulation_steps),
        )
        self._handles = (
            model.register_forward_pre_hook(self._before_forward, with_kwargs=True),
            model.register_forward_hook(self._after_forward),
        )

    def _refuse_clipped_norms(self, args: Any) -> None:
        if args.max_grad_norm and "GradNormHook" in self._guest.uses:
            raise ConfigError(
                f"GradNormHook cannot be used inside Transformers with max_grad_norm={args.max_grad_norm}: its "
                "callbacks see the gradients only after they are clipped. Set max_grad_norm=0, or use the grad_norm "
                "in its logs"
            )

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Begin a pass over the data."""
        self._guest.begin_epoch()

    def on_step_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Begin the batches of an optimizer step."""
        self._in_window = True
        left, accumulate = self._guest.batches_left, args.gradient_accumulation_steps
        self._shares = accumulate if left is None else min(accumulate, left)
        if args.average_tokens_across_devices:
            self._shares *= args.world_size

    def _before_forward(self, model: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Begin an iteration with the arguments of the model as its batch."""
        if self._in_window and not self._in_iteration and torch.is_grad_enabled():
            self._in_iteration = True
            batch: dict[Any, Any] = {**dict(enumerate(arguments)), **named}
            self._divided_by = self._shares if named.get("num_items_in_batch") is not None else 1
            self._guest.begin_step(batch, self._guest.batches_left == 1)

    def _after_forward(self, model: Any, arguments: Any, outputs: Any) -> None:
        """Show the loss to hooks, as the model returns it."""
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
        if self._in_iteration and isinstance(loss, torch.Tensor):
            self._knows_loss = True
            self._guest.take_loss(loss if self._divided_by == 1 else loss * self._divided_by)

    def on_substep_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """End an iteration inside an accumulation window."""
        self._end_iteration(control)

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """End the last iteration of an optimizer step."""
        self._end_iteration(control)
        self._in_window = False

    def _end_iteration(self, control: Any) -> None:
        if self._in_iteration and not self._knows_loss:
            self._knows_loss = True
            self._guest.report_no_loss("compute_loss of the Trainer computes it where callbacks see nothing")
        self._in_iteration = False
        self._guest.end_step()
        self._pass_on_stop(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """End a pass over the data."""
        self._guest.end_epoch()
        self._pass_on_stop(control)

    def _pass_on_stop(self, control: Any) -> None:
        if self._guest.stopped:
            control.should_training_stop = True

    # -- validation

    def on_evaluate(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Call the points of a validation with its metrics. Transformers tells only its end."""
        self._guest.begin_validation(after_epoch=False)
        found = {name: value for name, value in parts["metrics"].items() if name not in NO_METRICS}
        self._guest.end_validation(as_metrics(found, "eval"))
        self._pass_on_stop(control)

    # -- the end

    def on_train_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Call the last points, and write the report."""
        self._remove_handles()
        self._guest.finish()

    def close(self, error: BaseException | None = None) -> None:
        """End a run whose training has failed. Transformers has no callback for that.

        Without this call, the run ends with the next training of this callback, or with the process.

        Args:
            error: The error that has ended training.
        """
        self._remove_handles()
        self._in_window = self._in_iteration = False
        if self._guest.is_running:
            self._guest.fail(error if error is not None else HooklineError("the Trainer did not finish its training"))

    def _remove_handles(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = ()


def _length_of(loader: Any) -> int | None:
    """Return the number of batches of a pass; None if it is unknown."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None


def _position_of(state: Any, length: int | None, accumulate: int) -> tuple[int, int]:
    """Return the finished epochs and batches of a training that the Trainer has resumed."""
    if not state.global_step or length is None:
        return 0, state.global_step * accumulate
    epochs, steps = divmod(state.global_step, math.ceil(length / accumulate))
    return epochs, epochs * length + steps * accumulate


_callbacks: weakref.WeakSet[HooklineCallback] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """End runs that have failed, with the error that ends the process."""
    for callback in list(_callbacks):
        callback.close(getattr(sys, "last_value", None))

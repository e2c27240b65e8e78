"""ValidationHook: calls an evaluation function at an interval of steps or epochs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from hookline.common import rng
from hookline.common.modes import in_mode
from hookline.dialects.errors import SettingTypeError
from hookline.dialects.robo_orchard_core.utils.function_info import FunctionInfo
from hookline.dialects.robo_orchard_lab.pipeline.hooks.configured import ConfiguredHooks
from hookline.dialects.robo_orchard_lab.pipeline.hooks.frequency import (
    check_frequencies,
    due_after_epoch,
    due_after_step,
)
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import PipelineHookArgs, PipelineHooksConfig

__all__ = ["ValidationHook", "ValidationHookConfig"]


class ValidationHook(ConfiguredHooks["ValidationHookConfig"]):
    """Calls `eval_callback` after every `step_eval_freq` steps of the run, and after every `epoch_eval_freq` epochs.

    The callback takes the model or no arguments. During the call, the model is in evaluation mode. Afterwards, every
    part of it has its earlier mode again. Random numbers that the callback draws, for example in a shuffling loader, do
    not change the training.
    """

    def __init__(self, cfg: ValidationHookConfig) -> None:
        super().__init__(cfg)
        self.takes_model = takes_model(cfg.eval_callback)
        if cfg.eval_at_begin:
            self.at("on_loop", before=self._on_loop_begin)
        if cfg.epoch_eval_freq is not None:
            self.at("on_epoch", after=self._on_epoch_end)
        if cfg.step_eval_freq is not None:
            self.at("on_step", after=self._on_step_end)

    def evaluate(self, args: PipelineHookArgs) -> None:
        """Call the callback. If it returns numbers by name, they are recorded."""
        trainer = args._trainer
        with rng.preserved(), nullcontext() if trainer is None else trainer.plan.ledger.part("validation"):
            if args.model is None:
                found = self.cfg.eval_callback()
            else:
                with in_mode(args.model, training=False), torch.enable_grad():
                    found = self.cfg.eval_callback(*[args.model] * self.takes_model)
        if trainer is not None:
            trainer.note_validation(found, args.micro_step.global_step_id)

    def _on_loop_begin(self, args: PipelineHookArgs) -> None:
        if args.global_step_id == 0:
            self.evaluate(args)

    def _on_step_end(self, args: PipelineHookArgs) -> None:
        if due_after_step(args, self.cfg.step_eval_freq):
            self.evaluate(args)

    def _on_epoch_end(self, args: PipelineHookArgs) -> None:
        if due_after_epoch(args, self.cfg.epoch_eval_freq):
            self.evaluate(args)


def takes_model(callback: Callable[..., Any]) -> bool:
    """Return whether a callback takes the model. Refuse one that takes anything but the model or no arguments."""
    try:
        signature = inspect.signature(callback)
    except (TypeError, ValueError):  # some callables have no signature
        return True
    for arguments in ((None,), ()):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return bool(arguments)
    raise SettingTypeError(f"eval_callback must take the model or no arguments, unlike {FunctionInfo(callback)}")


class ValidationHookConfig(PipelineHooksConfig[ValidationHook]):
    """The config of ValidationHook."""

    class_type: type[ValidationHook] = ValidationHook
    eval_callback: Callable[..., Any]
    step_eval_freq: int | None = None
    epoch_eval_freq: int | None = None
    eval_at_begin: bool = False

    def __post_init__(self) -> None:
        """Refuse a config that never evaluates, and invalid frequencies."""
        check_frequencies(self, "step_eval_freq", "epoch_eval_freq")

"""MetricTracker: metrics of the training batches."""

from __future__ import annotations

import logging
from abc import ABCMeta, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field

from hookline.dialects.robo_orchard_core.refusals import HookValueError
from hookline.dialects.robo_orchard_core.utils.function_info import known_as
from hookline.dialects.robo_orchard_lab.pipeline.hooks.frequency import due_after_epoch, due_after_step
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import (
    HookContext,
    PipelineHookArgs,
    PipelineHooks,
    PipelineHooksConfig,
)
from hookline.dialects.robo_orchard_lab.utils import as_sequence

__all__ = ["MetricEntry", "MetricTracker", "MetricTrackerConfig"]

log = logging.getLogger(known_as(__name__))


@dataclass
class MetricEntry:
    """A metric, and what its value, or each of its values, is called."""

    names: Sequence[str] | str
    metric: Any

    def __post_init__(self) -> None:
        self.names = as_sequence(self.names)

    def get(self) -> Iterable[tuple[str, Any]]:
        """The values now, by name."""
        values = as_sequence(self.metric.compute())
        if len(values) != len(self.names):
            raise HookValueError(
                f"{type(self.metric).__name__} gives {len(values)} values, and there are {len(self.names)} names for "
                f"them: {list(self.names)}"
            )
        return zip(self.names, values, strict=True)


class MetricTracker(PipelineHooks, metaclass=ABCMeta):
    """Updates metrics with every batch, and logs and resets them every so many steps or epochs.

    A subclass says in `update_metric` what of a batch goes into `self.metrics`.
    """

    def __init__(self, cfg: MetricTrackerConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.metric_entrys: Sequence[MetricEntry] = as_sequence(cfg.metric_entrys)
        self.metrics = [entry.metric for entry in self.metric_entrys]
        self._reset()
        self.register_hook("on_loop", HookContext.from_callable(before=self._on_loop_begin))
        self.register_hook("on_epoch", HookContext.from_callable(after=self._on_epoch_end))
        self.register_hook("on_step", HookContext.from_callable(after=self._on_step_end))
        self.register_hook("on_batch", HookContext.from_callable(after=self._on_batch_end))

    @abstractmethod
    def update_metric(self, batch: Any, model_outputs: Any) -> None:
        """Take one batch into the metrics."""

    def _reset(self) -> None:
        for metric in self.metrics:
            metric.reset()

    def _log(self, where: str, args: PipelineHookArgs) -> None:
        # All processes compute, because a metric may gather what it needs from all of them.
        found = [f"{name}[{shown(value)}]" for entry in self.metric_entrys for name, value in entry.get()]
        if args.accelerator.is_main_process or not self.cfg.log_main_process_only:
            log.info("%s%s", where, " ".join(found))

    def _on_loop_begin(self, args: PipelineHookArgs) -> None:
        for metric in self.metrics:
            if hasattr(metric, "to"):
                metric.to(device=args.accelerator.device)

    def _on_batch_end(self, args: PipelineHookArgs) -> None:
        if args.exception is None:
            self.update_metric(args.batch, args.model_outputs)

    def _on_step_end(self, args: PipelineHookArgs) -> None:
        if due_after_step(args, self.cfg.step_log_freq):
            self._log(f"Epoch[{args.epoch_id}] Step[{args.step_id}] GlobalStep[{args.global_step_id}]: ", args)
        if self.cfg.reset_by == "step" and due_after_step(args, self.cfg.reset_freq):
            self._reset()

    def _on_epoch_end(self, args: PipelineHookArgs) -> None:
        if due_after_epoch(args, self.cfg.epoch_log_freq):
            self._log(f"Epoch[{args.epoch_id}]: ", args)
        if self.cfg.reset_by == "epoch" and due_after_epoch(args, self.cfg.reset_freq):
            self._reset()

    def state_dict(self) -> dict[str, Any]:
        """What the metrics have taken in so far, as far as they can tell."""
        return {"metrics": [state_of(metric) for metric in self.metrics]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        for metric, saved in zip(self.metrics, state["metrics"], strict=True):
            give_back(metric, saved)


def shown(value: Any) -> str:
    """A number with four digits behind the point; anything else as it is."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    return f"{value:.4f}" if isinstance(value, (int, float)) else str(value)


def state_of(metric: Any) -> dict[str, Any] | None:
    """The state of a metric of torchmetrics, whose state_dict is empty, or of any other that has one.

    It is that of all its parts, by their names: a collection has members, and a wrapper has what it wraps.
    """
    if hasattr(metric, "metric_state"):
        return {
            name: {"values": {key: copied(value) for key, value in part.metric_state.items()}, "updates": updates}
            for name, part, updates in parts_of(metric)
        }
    return metric.state_dict() if hasattr(metric, "state_dict") else None


def give_back(metric: Any, state: dict[str, Any] | None) -> None:
    """Give a metric the state that it had."""
    if state is None:
        return
    if not hasattr(metric, "metric_state"):
        metric.load_state_dict(state)
        return
    parts = {name: part for name, part, _ in parts_of(metric)}
    if parts.keys() != state.keys():
        raise HookValueError(
            f"the state of a {type(metric).__name__} was saved with the parts {sorted(state)}, and it has "
            f"{sorted(parts)} now"
        )
    for name, part in parts.items():
        for key, value in state[name]["values"].items():
            setattr(part, key, copied(value, part.device))
        part._update_count = state[name]["updates"]
        part._computed = None


def parts_of(metric: Any) -> list[tuple[str, Any, int]]:
    """A metric and all metrics in it, with their names and how often they were updated; a collection itself is none."""
    inside = metric.named_modules()
    return [(name, part, part._update_count) for name, part in inside if hasattr(part, "_update_count")]


def copied(value: Any, device: Any = None) -> Any:
    """A value of a state; copied, because members of a collection may share theirs and add to it where it is."""
    if isinstance(value, list):
        return [copied(one, device) for one in value]
    return value.detach().to(device=device, copy=True)


class MetricTrackerConfig(PipelineHooksConfig[MetricTracker]):
    """The config of MetricTracker; 0 as a frequency of lines means none."""

    class_type: type[MetricTracker] = MetricTracker  # type: ignore[type-abstract]  # a subclass of the user's is
    metric_entrys: Sequence[MetricEntry] | MetricEntry
    reset_by: Literal["epoch", "step"] = "epoch"
    reset_freq: int = Field(default=1, ge=1)
    step_log_freq: int = Field(default=512, ge=0)
    epoch_log_freq: int = Field(default=1, ge=0)
    log_main_process_only: bool = True

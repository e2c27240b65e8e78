"""MetricTracker: computes and logs metrics of the training batches."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field

from hookline.dialects.errors import HookValueError
from hookline.dialects.robo_orchard_core.utils.function_info import logger_of
from hookline.dialects.robo_orchard_lab.pipeline.hooks.configured import ConfiguredHooks
from hookline.dialects.robo_orchard_lab.pipeline.hooks.frequency import due_after_epoch, due_after_step
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import PipelineHookArgs, PipelineHooksConfig
from hookline.dialects.robo_orchard_lab.utils import as_sequence

__all__ = ["MetricEntry", "MetricTracker", "MetricTrackerConfig"]

logger = logger_of(__name__)


@dataclass
class MetricEntry:
    """A metric, and the name of its value or of each of its values."""

    names: Sequence[str] | str
    metric: Any

    def __post_init__(self) -> None:
        self.names = as_sequence(self.names)

    def get(self) -> Iterable[tuple[str, Any]]:
        """Return the current values by name."""
        values = as_sequence(self.metric.compute())
        if len(values) != len(self.names):
            raise HookValueError(
                f"{type(self.metric).__name__} returned {len(values)} values, but there are {len(self.names)} names "
                f"for them: {list(self.names)}"
            )
        return zip(self.names, values, strict=True)


class MetricTracker(ConfiguredHooks["MetricTrackerConfig"], metaclass=ABCMeta):
    """Updates metrics with every batch, and logs and resets them at an interval of steps or epochs.

    A subclass updates `self.metrics` in `update_metric`.
    """

    def __init__(self, cfg: MetricTrackerConfig) -> None:
        super().__init__(cfg)
        self.metric_entrys: Sequence[MetricEntry] = as_sequence(cfg.metric_entrys)
        self.metrics = [entry.metric for entry in self.metric_entrys]
        self._reset()
        self.at("on_loop", before=self._on_loop_begin)
        self.at("on_epoch", after=self._on_epoch_end)
        self.at("on_step", after=self._on_step_end)
        self.at("on_batch", after=self._on_batch_end)

    @abstractmethod
    def update_metric(self, batch: Any, model_outputs: Any) -> None:
        """Update the metrics with one batch."""

    def _reset(self) -> None:
        for metric in self.metrics:
            metric.reset()

    def _log(self, where: str, args: PipelineHookArgs) -> None:
        # All processes compute, because a metric may gather data from all of them.
        found = [f"{name}[{format_value(value)}]" for entry in self.metric_entrys for name, value in entry.get()]
        if args.accelerator.is_main_process or not self.cfg.log_main_process_only:
            logger.info("%s%s", where, " ".join(found))

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
        """Return the states of the metrics; None for a metric without a state."""
        return {"metrics": [get_state(metric) for metric in self.metrics]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the states of the metrics."""
        for metric, saved in zip(self.metrics, state["metrics"], strict=True):
            restore_state(metric, saved)


def format_value(value: Any) -> str:
    """Return a number as text with four decimal places; convert anything else with `str`."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    return f"{value:.4f}" if isinstance(value, (int, float)) else str(value)


def get_state(metric: Any) -> dict[str, Any] | None:
    """Return the state of a metric. For torchmetrics, whose state_dict is empty, it is read from `metric_state`.

    The state contains all parts by name: the members of a collection, and the metric inside a wrapper.
    """
    if hasattr(metric, "metric_state"):
        return {
            name: {"values": {key: copy_value(value) for key, value in part.metric_state.items()}, "updates": updates}
            for name, part, updates in parts_of(metric)
        }
    return metric.state_dict() if hasattr(metric, "state_dict") else None


def restore_state(metric: Any, state: dict[str, Any] | None) -> None:
    """Restore the state of a metric."""
    if state is None:
        return
    if not hasattr(metric, "metric_state"):
        metric.load_state_dict(state)
        return
    parts = {name: part for name, part, _ in parts_of(metric)}
    if parts.keys() != state.keys():
        raise HookValueError(
            f"the state of a {type(metric).__name__} was saved with the parts {sorted(state)}, but now it has "
            f"{sorted(parts)}"
        )
    for name, part in parts.items():
        for key, value in state[name]["values"].items():
            setattr(part, key, copy_value(value, part.device))
        part._update_count = state[name]["updates"]
        part._computed = None


def parts_of(metric: Any) -> list[tuple[str, Any, int]]:
    """Return a metric and all metrics in it, with names and numbers of updates; a collection itself is left out."""
    inside = metric.named_modules()
    return [(name, part, part._update_count) for name, part in inside if hasattr(part, "_update_count")]


def copy_value(value: Any, device: Any = None) -> Any:
    """Copy a value of a state, because members of a collection may share it and update it in place."""
    if isinstance(value, list):
        return [copy_value(one, device) for one in value]
    return value.detach().to(device=device, copy=True)


class MetricTrackerConfig(PipelineHooksConfig[MetricTracker]):
    """The config of MetricTracker; 0 as a log frequency means never."""

    class_type: type[MetricTracker] = MetricTracker  # type: ignore[type-abstract]  # users set their own concrete subclass
    metric_entrys: Sequence[MetricEntry] | MetricEntry
    reset_by: Literal["epoch", "step"] = "epoch"
    reset_freq: int = Field(default=1, ge=1)
    step_log_freq: int = Field(default=512, ge=0)
    epoch_log_freq: int = Field(default=1, ge=0)
    log_main_process_only: bool = True

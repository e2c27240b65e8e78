"""LossTracker: logs losses every so many steps."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic import Field

from hookline.dialects.robo_orchard_core.refusals import HookTypeError
from hookline.dialects.robo_orchard_core.utils.function_info import known_as
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import (
    HookContext,
    ModelOutput,
    ModelOutputHasLossKeys,
    PipelineHookArgs,
    PipelineHooks,
    PipelineHooksConfig,
)

if TYPE_CHECKING:
    import torch

__all__ = ["LossMovingAverageTracker", "LossMovingAverageTrackerConfig", "LossTracker", "LossTrackerConfig"]

log = logging.getLogger(known_as(__name__))


class LossTracker(PipelineHooks):
    """Logs every loss in the model's outputs: those that `loss_keys()` names, or whose name contains `loss`.

    Outputs without names are logged as the one loss that the step had. Losses are added up where they are, and only a
    line that is due waits for the device. What is logged is the mean since the line before, over all processes, or,
    without `moving_average`, the last value. Trackers of accelerate get them as `Loss/<name>`.
    """

    def __init__(self, cfg: LossTrackerConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self._sums: dict[str, torch.Tensor] = {}
        self._counts: dict[str, int] = {}
        self.register_hook("on_step", HookContext.from_callable(after=self._on_step_end))

    def update(self, outputs: Any, loss: torch.Tensor | None = None) -> None:
        """Take in the losses of one step."""
        for name, value in losses_of(outputs, loss):
            if not hasattr(value, "detach"):
                raise HookTypeError(
                    f"the loss '{name}' is a {type(value).__name__}, and {type(self).__name__} takes tensors; make it "
                    "one, or say which of the outputs are losses: loss_keys()"
                )
            value = value.detach().float().mean()
            if self.cfg.moving_average and name in self._sums:
                self._sums[name] = self._sums[name] + value
                self._counts[name] += 1
            else:
                self._sums[name], self._counts[name] = value, 1

    def _on_step_end(self, args: PipelineHookArgs) -> None:
        if args.exception is not None:
            return
        self.update(args.model_outputs, args.reduce_loss)
        if (args.global_step_id + 1) % self.cfg.step_log_freq == 0:
            self._log(args)
            self._sums, self._counts = {}, {}

    def _log(self, args: PipelineHookArgs) -> None:
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        found = {name: float(args.accelerator.reduce(mean, reduction="mean")) for name, mean in means.items()}
        if not args.accelerator.is_main_process:
            return
        parts = [f"{name}[{value:.4f}]" for name, value in found.items()]
        records = {f"Loss/{name}": value for name, value in found.items()}
        if self.cfg.log_total_loss:
            total = sum(found.values())
            parts.append(f"total_loss[{total:.4f}]")
            records["Loss/Total_Loss"] = total
        log.info("%s%s", place(args), "\t".join(parts))
        args.accelerator.log(records, step=args.global_step_id)

    def state_dict(self) -> dict[str, Any]:
        """What was added up since the last line."""
        return {"sums": dict(self._sums), "counts": dict(self._counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])


def losses_of(outputs: Any, loss: torch.Tensor | None) -> Iterable[tuple[str, torch.Tensor]]:
    """The losses of a step by name."""
    names: Iterable[Any] = ()
    if isinstance(outputs, ModelOutputHasLossKeys):
        names = outputs.loss_keys()
    elif isinstance(outputs, ModelOutput):
        names = [name for name in outputs.keys() if "loss" in str(name)]  # noqa: SIM118  # it need not be iterable
    found = [(str(name), outputs[name]) for name in names]
    return found if found or loss is None else [("loss", loss)]


def place(args: PipelineHookArgs) -> str:
    """`Epoch[0/4] Step[1] GlobalStep[1/NA]: `, each as its number and the last one that will come."""
    last_epoch = "NA" if args.max_epoch is None else args.max_epoch - 1
    last_step = "NA" if args.max_step is None else args.max_step - 1
    return f"Epoch[{args.epoch_id}/{last_epoch}] Step[{args.step_id}] GlobalStep[{args.global_step_id}/{last_step}]: "


class LossTrackerConfig(PipelineHooksConfig[LossTracker]):
    """The config of LossTracker."""

    class_type: type[LossTracker] = LossTracker
    step_log_freq: int = Field(default=5, ge=1)
    log_total_loss: bool = False
    moving_average: bool = True


class LossMovingAverageTracker(LossTracker):
    """The old name of LossTracker."""


class LossMovingAverageTrackerConfig(LossTrackerConfig):
    """The old config of LossTracker, with its defaults."""

    class_type: type[LossTracker] = LossMovingAverageTracker
    step_log_freq: int = Field(default=25, ge=1)
    log_total_loss: bool = True

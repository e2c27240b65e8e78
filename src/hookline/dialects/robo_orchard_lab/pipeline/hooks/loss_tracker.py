"""LossTracker: logs losses at an interval of steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic import Field

from hookline.dialects.errors import HookTypeError
from hookline.dialects.robo_orchard_core.utils.function_info import logger_of
from hookline.dialects.robo_orchard_lab.pipeline.hooks.configured import ConfiguredHooks
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import (
    ModelOutput,
    ModelOutputHasLossKeys,
    PipelineHookArgs,
    PipelineHooksConfig,
)

if TYPE_CHECKING:
    import torch

__all__ = ["LossMovingAverageTracker", "LossMovingAverageTrackerConfig", "LossTracker", "LossTrackerConfig"]

logger = logger_of(__name__)


class LossTracker(ConfiguredHooks["LossTrackerConfig"]):
    """Logs every loss in the model's outputs: those that `loss_keys()` names, or whose name contains `loss`.

    If the outputs have no names, the one loss of the step is logged. Losses are summed on their device, so only a line
    that is due waits for the device. The logged value is the mean since the previous line, over all processes. Without
    `moving_average`, it is the last value. accelerate's trackers get the losses as `Loss/<name>`.
    """

    def __init__(self, cfg: LossTrackerConfig) -> None:
        super().__init__(cfg)
        self._sums: dict[str, torch.Tensor] = {}
        self._counts: dict[str, int] = {}
        self.at("on_step", after=self._on_step_end)

    def update(self, outputs: Any, loss: torch.Tensor | None = None) -> None:
        """Add the losses of one step."""
        for name, value in find_losses(outputs, loss):
            if not hasattr(value, "detach"):
                raise HookTypeError(
                    f"the loss '{name}' is a {type(value).__name__}, but {type(self).__name__} needs tensors; make it "
                    "one, or name the losses among the outputs with loss_keys()"
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
        logger.info("%s%s", format_place(args), "\t".join(parts))
        args.accelerator.log(records, step=args.global_step_id)

    def state_dict(self) -> dict[str, Any]:
        """Return the sums and counts since the last line."""
        return {"sums": dict(self._sums), "counts": dict(self._counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the sums and counts."""
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])


def find_losses(outputs: Any, loss: torch.Tensor | None) -> Iterable[tuple[str, torch.Tensor]]:
    """Return the losses of a step by name."""
    names: Iterable[Any] = ()
    if isinstance(outputs, ModelOutputHasLossKeys):
        names = outputs.loss_keys()
    elif isinstance(outputs, ModelOutput):
        names = [name for name in outputs.keys() if "loss" in str(name)]  # noqa: SIM118  # it need not be iterable
    found = [(str(name), outputs[name]) for name in names]
    return found if found or loss is None else [("loss", loss)]


def format_place(args: PipelineHookArgs) -> str:
    """Return `Epoch[0/4] Step[1] GlobalStep[1/NA]: `: the current numbers and, after the slash, the last ones."""
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

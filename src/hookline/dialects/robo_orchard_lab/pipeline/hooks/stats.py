"""StatsMonitor: logs the training speed, the remaining time and the learning rates."""

from __future__ import annotations

from collections import deque
from datetime import timedelta

from pydantic import Field

from hookline.common.durations import clock
from hookline.data.batches import length_of
from hookline.data.weights import batch_size
from hookline.dialects.robo_orchard_core.utils.function_info import logger_of
from hookline.dialects.robo_orchard_lab.pipeline.hooks.configured import ConfiguredHooks
from hookline.dialects.robo_orchard_lab.pipeline.hooks.frequency import due_after_epoch, due_after_step
from hookline.dialects.robo_orchard_lab.pipeline.hooks.mixin import PipelineHookArgs, PipelineHooksConfig

__all__ = ["StatsMonitor", "StatsMonitorConfig"]

logger = logger_of(__name__)


class StatsMonitor(ConfiguredHooks["StatsMonitorConfig"]):
    """Logs samples per second over all processes, the time of a step, the remaining time, and the learning rates.

    The speed is measured over the last `window_size` steps. It includes loading the data and excludes saves.
    accelerate's trackers get the learning rates as `LR/group<i>`.
    """

    def __init__(self, cfg: StatsMonitorConfig) -> None:
        super().__init__(cfg)
        self.batch_size, self.steps_per_epoch = cfg.batch_size, cfg.steps_per_epoch
        self.step_log_freq, self.epoch_log_freq = cfg.step_log_freq, cfg.epoch_log_freq
        self._times: deque[float] = deque(maxlen=cfg.window_size)
        self._samples: deque[int] = deque(maxlen=cfg.window_size)
        self._since = 0.0
        self._waited = 0.0
        self._epoch_since = 0.0
        self.at("on_loop", before=self._on_loop_begin)
        self.at("on_epoch", before=self._on_epoch_begin, after=self._on_epoch_end)
        self.at("on_step", after=self._on_step_end)
        self.at("on_batch", after=self._on_batch_end)

    def _on_loop_begin(self, args: PipelineHookArgs) -> None:
        self._times.clear()
        self._samples.clear()

    def _on_epoch_begin(self, args: PipelineHookArgs) -> None:
        self._epoch_since = self._since = clock()
        self._waited = _get_save_time(args)

    def _on_batch_end(self, args: PipelineHookArgs) -> None:
        self._samples.append(self.batch_size or batch_size(args.batch))

    def _on_step_end(self, args: PipelineHookArgs) -> None:
        now, waited = clock(), _get_save_time(args)
        self._times.append(now - self._since - (waited - self._waited))
        self._since, self._waited = now, waited
        if due_after_step(args, self.step_log_freq):
            where = f"Epoch[{args.epoch_id}] Step[{args.step_id}] GlobalStep[{args.global_step_id}]: "
            self._log(where, args, args.global_step_id + 1)
            rates = {f"LR/group{number}": rate for number, rate in enumerate(_rates(args))}
            args.accelerator.log(rates, step=args.global_step_id)

    def _on_epoch_end(self, args: PipelineHookArgs) -> None:
        if due_after_epoch(args, self.epoch_log_freq):
            where = f"Epoch[{args.epoch_id}] completed in {clock() - self._epoch_since:.2f} s: "
            self._log(where, args, args.global_step_id)

    def _log(self, where: str, args: PipelineHookArgs, done: int) -> None:
        if not args.accelerator.is_main_process:
            return
        parts, spent = [], sum(self._times)
        if self._times:
            step_time, left = spent / len(self._times), self._count_left(args, done)
            speed = sum(self._samples) * args.accelerator.num_processes / spent if spent else None
            parts += [f"speed {speed:.2f} samples/s"] if speed is not None else []
            parts.append(f"step time {step_time:.4f} s")
            parts.append(f"remaining {'NA' if left is None else timedelta(seconds=int(left * step_time))}")
        parts += [f"lr group {number} {rate:.5e}" for number, rate in enumerate(_rates(args))]
        logger.info("%s%s", where, "\t".join(parts))

    def _count_left(self, args: PipelineHookArgs, done: int) -> int | None:
        """Return the number of remaining steps; None if it is unknown."""
        of_epoch = self.steps_per_epoch or length_of(args.dataloader)
        ends = [] if args.max_step is None else [args.max_step]
        if args.max_epoch is not None and of_epoch is not None:
            ends.append(args.max_epoch * of_epoch)
        return max(0, min(ends) - done) if ends else None


def _get_save_time(args: PipelineHookArgs) -> float:
    """Return the seconds that training has waited for saves so far."""
    return 0.0 if args._trainer is None else args._trainer.saving.seconds


def _rates(args: PipelineHookArgs) -> list[float]:
    return [] if args.optimizer is None else [float(group["lr"]) for group in args.optimizer.param_groups]


class StatsMonitorConfig(PipelineHooksConfig[StatsMonitor]):
    """The config of StatsMonitor; 0 as a frequency means never."""

    class_type: type[StatsMonitor] = StatsMonitor
    batch_size: int | None = Field(default=None, ge=1)
    steps_per_epoch: int | None = Field(default=None, ge=1)
    step_log_freq: int = Field(default=512, ge=0)
    epoch_log_freq: int = Field(default=1, ge=0)
    window_size: int = Field(default=128, ge=1)

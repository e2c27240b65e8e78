"""CommonMetricLoggerHook: a line for people."""

from __future__ import annotations

from functools import partial
from typing import Any

from hookline.dialects.imix.engine.hooks.periods.log_buffer_imix import LogBufferStorage, LogBufferWriter
from hookline.terminal import as_time

SEPARATOR = " \t "


class CommonMetricLoggerHook(LogBufferWriter):
    """Where training stands, losses, learning rate, times and the time that is left, as one line.

    Args:
        max_iter: How many iterations there are; as the engine says, unless given.
        max_epoch: How many epochs, likewise.
    """

    def __init__(self, max_iter: int | None = None, max_epoch: int | None = None) -> None:
        self._max_iter = max_iter
        self._max_epoch = max_epoch

    def process_buffer_data(self) -> None:
        """One line, on the screen and in run.log."""
        trainer = self.trainer
        shown = self.log_buffer.latest_with_smoothing_hint(self.window_size)
        line = self._line(trainer, shown, self._eta(trainer))
        trainer.runner.terminal.detail(partial(str, line))

    def _line(self, trainer: Any, shown: dict[str, float], eta: float | None) -> str:
        max_iter, max_epoch = self._max_iter or trainer.max_iter, self._max_epoch or trainer.max_epoch
        parts = []
        if trainer.by_epoch:
            length = trainer.runner.train_loop.length
            parts += [f"epoch:{trainer.epoch}", f"{trainer.inner_iter + 1}/{'?' if length is None else length}"]
        parts += [f"current_iter:{trainer.iter}", f"max_iter:{'?' if max_iter is None else max_iter}"]
        if trainer.by_epoch:
            parts.append(f"max_epoch:{max_epoch}")
        parts += [f"{name}: {value:.3f}" for name, value in shown.items() if "loss" in name]
        times = {"lr": "lr:{:.6e}", "data_time": "load_data_time:{:.4f}", "iter_time": "iter_time:{:.4f}"}
        parts += [text.format(shown[name]) for name, text in times.items() if name in shown]
        if trainer.runner.device.type == "cuda":
            import torch

            parts.append(f"max used memory:{torch.cuda.max_memory_allocated(trainer.runner.device) / 2**20:.0f}M")
        if eta is not None:
            parts.append(f"eta:{as_time(eta)}")
        return SEPARATOR.join(parts)

    def _eta(self, trainer: Any) -> float | None:
        buffer: LogBufferStorage = self.log_buffer
        if trainer.max_iter is None or "iter_time" not in buffer:
            return None
        left: int = trainer.max_iter - trainer.iter - 1
        return buffer.history("iter_time").median(1000) * left

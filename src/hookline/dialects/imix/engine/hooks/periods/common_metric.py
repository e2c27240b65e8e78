"""CommonMetricLoggerHook: one readable line per record."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from hookline.common.numbers import as_time
from hookline.dialects.imix.engine.hooks.periods.log_buffer_imix import LogBufferWriter

SEPARATOR = " \t "
TIMES = {"lr": "lr:{:.6e}", "data_time": "load_data_time:{:.4f}", "iter_time": "iter_time:{:.4f}"}


class CommonMetricLoggerHook(LogBufferWriter):
    """Prints one line per record: progress, losses, learning rate, times and the estimated time left.

    Args:
        max_iter: The total number of iterations. The default is the engine's.
        max_epoch: The total number of epochs. The default is the engine's.
    """

    def __init__(self, max_iter: int | None = None, max_epoch: int | None = None) -> None:
        self._max_iter = max_iter
        self._max_epoch = max_epoch

    def process_buffer_data(self) -> None:
        """Print one line, on the screen and to run.log."""
        trainer = self.trainer
        shown = self.log_buffer.latest_with_smoothing_hint(self.window_size)
        max_iter, max_epoch = self._max_iter or trainer.max_iter, self._max_epoch or trainer.max_epoch
        at = (trainer.epoch, trainer.inner_iter, trainer.runner.train_loop.length) if trainer.by_epoch else None
        memory = _memory(trainer.runner.device)
        trainer.runner.terminal.detail(partial(format_line, at, trainer.iter, max_iter, max_epoch, shown, memory))


def format_line(
    at: tuple[int, int, int | None] | None,
    iteration: int,
    max_iter: int | None,
    max_epoch: int | None,
    shown: Mapping[str, float],
    memory: float | None,
) -> str:
    """Return the line of a record. `at` is the epoch, the iteration in it, and the number of iterations it has."""
    parts = []
    if at is not None:
        parts += [f"epoch:{at[0]}", f"{at[1] + 1}/{'?' if at[2] is None else at[2]}"]
    parts += [f"current_iter:{iteration}", f"max_iter:{'?' if max_iter is None else max_iter}"]
    if at is not None:
        parts.append(f"max_epoch:{max_epoch}")
    parts += [f"{name}: {value:.3f}" for name, value in shown.items() if "loss" in name]
    parts += [text.format(shown[name]) for name, text in TIMES.items() if name in shown]
    if memory is not None:
        parts.append(f"max used memory:{memory:.0f}M")
    if max_iter is not None and "iter_time" in shown:
        each = shown["iter_time"] + shown.get("data_time", 0.0)
        parts.append(f"eta:{as_time(each * (max_iter - iteration - 1))}")
    return SEPARATOR.join(parts)


def _memory(device: Any) -> float | None:
    if device.type != "cuda":
        return None
    import torch

    return torch.cuda.max_memory_allocated(device) / 2**20

"""JSONLoggerHook: one line of JSON per record."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hookline.common.checks import check_int
from hookline.dialects.imix.engine.hooks.periods.elsewhere import JsonLinesWriter, check_path, resolve_path
from hookline.dialects.imix.engine.hooks.periods.log_buffer_imix import LogBufferWriter

if TYPE_CHECKING:
    from hookline.dialects.imix.engine.parts import Parts
    from hookline.writers.base import Writer


class JSONLoggerHook(LogBufferWriter):
    """Writes one line of JSON per record, with sorted keys: `{"epoch": 0, "iteration": 4, "loss": 0.41, ...}`.

    Every step is in the file exactly once, even after a resume.

    Args:
        json_file: A path. A bare name is a file in `work_dir`.
        window_size: The number of newest values whose median is written.
    """

    _writer: Writer | None = None

    def __init__(self, json_file: str | os.PathLike[str] = "metrics.json", window_size: int = 20) -> None:
        check_path("JSONLoggerHook: json_file", json_file, of_file=True)
        check_int("JSONLoggerHook: window_size", window_size, least=1)
        self.json_file = json_file
        self.window_size = window_size

    def _prepare(self, parts: Parts) -> None:
        self._writer = JsonLinesWriter(resolve_path(self.json_file, parts.work_dir), parts.work_dir)
        parts.writers.append(self._writer)

    def process_buffer_data(self) -> None:
        """Write one line."""
        trainer = self.trainer
        if self._writer is not None:
            trainer.runner.writers.only(self._writer).write_scalars(
                {"epoch": trainer.epoch, **self.new_values()}, trainer.iter
            )

    def close(self) -> None:
        """Write the last numbers of the last epoch."""
        self.write_remaining()

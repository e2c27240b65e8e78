"""TensorboardLoggerHook: numbers, images and histograms for TensorBoard."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hookline.common.checks import check_int
from hookline.dialects.imix.engine.hooks.periods.elsewhere import EventFileWriter, check_path, resolve_path
from hookline.dialects.imix.engine.hooks.periods.log_buffer_imix import LogBufferWriter

if TYPE_CHECKING:
    from hookline.dialects.imix.engine.parts import Parts
    from hookline.writers.base import Writer


class TensorboardLoggerHook(LogBufferWriter):
    """Writes all numbers, images and histograms of the buffer to the subfolder `runs` of a folder.

    Args:
        log_dir: A folder. A bare name is a folder in `work_dir`. The default is `work_dir` itself.
        window_size: The number of newest values whose median is written.
    """

    takes_images = True
    _writer: Writer | None = None

    def __init__(self, log_dir: str | os.PathLike[str] | None = None, window_size: int = 20) -> None:
        if log_dir is not None:
            check_path("TensorboardLoggerHook: log_dir", log_dir, of_file=False)
        check_int("TensorboardLoggerHook: window_size", window_size, least=1)
        self.log_dir = log_dir
        self.window_size = window_size

    def _prepare(self, parts: Parts) -> None:
        folder = parts.work_dir if self.log_dir is None else resolve_path(self.log_dir, parts.work_dir)
        self._writer = EventFileWriter(folder, parts.work_dir)
        parts.writers.append(self._writer)

    def process_buffer_data(self) -> None:
        """Write one event with the numbers, and one for each image and histogram."""
        if self._writer is None:
            return
        trainer, buffer = self.trainer, self.log_buffer
        writers = trainer.runner.writers.only(self._writer)
        writers.write_scalars({"epoch": trainer.epoch, **self.new_values()}, trainer.iter)
        for image in buffer.images:
            writers.write_image(image.name, image.data, image.iter)
        for histogram in buffer.histograms:
            writers.write_histogram(histogram.name, histogram.data, histogram.iter)
        buffer.clear_images()
        buffer.clear_histograms()

    def close(self) -> None:
        """Write the last numbers of the last epoch."""
        self.write_remaining()

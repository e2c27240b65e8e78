"""NaiveVisualizationHook: pass the images of a test to the visualizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hookline.dialects.mmengine.hooks.hook import DATA_BATCH as DATA_BATCH
from hookline.dialects.mmengine.hooks.hook import Hook
from hookline.dialects.mmengine.utils.dl_utils import tensor2imgs
from hookline.writers.extras import require_libraries


class NaiveVisualizationHook(Hook):
    """Undoes the scaling and padding of test images, and passes them with their predictions to `add_datasample`.

    Args:
        interval: Do this every n batches.
        draw_gt: Passed on to `add_datasample`.
        draw_pred: Passed on to `add_datasample`.
    """

    def __init__(self, interval: int = 1, draw_gt: bool = True, draw_pred: bool = True) -> None:
        require_libraries("NaiveVisualizationHook", "mmengine", "cv2")
        self.draw_gt, self.draw_pred, self._interval = draw_gt, draw_pred, interval

    def before_train(self, runner: Any) -> None:
        """Write the model."""
        runner.visualizer.add_graph(runner.model, None)

    def after_test_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        """Pass the samples of a batch to the visualizer."""
        if not self.every_n_inner_iters(batch_idx, self._interval):
            return
        import cv2

        for data, output in zip(data_batch, outputs, strict=False):
            sample = data["data_sample"]
            image = tensor2imgs(data["inputs"], **sample.get("img_norm_cfg", {}))[0]
            size = (sample.ori_width, sample.ori_height)
            if "pad_shape" in sample:
                width, height = sample.get("scale", size)
                image = image[:height, :width]
            name = Path(sample.img_path).name
            shown = cv2.resize(image, size)
            runner.visualizer.add_datasample(name, shown, sample, output, self.draw_gt, self.draw_pred)

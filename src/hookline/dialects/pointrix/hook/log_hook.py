"""LogHook: numbers of every step and images of every validation to the writer, a progress bar, a table."""

from __future__ import annotations

import math
import os
from typing import Any

from hookline.dialects.pointrix.hook.base_hook import Hook
from hookline.dialects.pointrix.logger.console import Logger
from hookline.dialects.pointrix.logger.progress import ProgressLogger
from hookline.record.hub import read_numbers
from hookline.record.smoothing import ExponentialMean

# How much the newest loss counts in what the bar shows.
NEWEST = 0.4
# What of a validation is written as an image: what it is called there, and in `metric_dict`.
IMAGES = {"depth": "depth", "render": "images", "ground_truth": "gt_images"}


class LogHook(Hook):
    """Writes what a step has in `loss_dict`, the number of points and the learning rate of their positions.

    The bar shows the loss as a running mean in which the newest counts 0.4; the first counts whole. After a validation
    the means of `losses_test` are written and shown as a table, and its images are written one by one. What a model or
    a data set does not have is left out.
    """

    def __init__(self) -> None:
        self._mean = ExponentialMean(NEWEST)
        self.bar_info: dict[str, str] = {}
        self.losses_test: dict[str, float] = {"L1_loss": 0.0, "psnr": 0.0, "ssims": 0.0, "lpips": 0.0}
        self.progress_bar: ProgressLogger | None = None
        self._bar_interval = 10

    @property
    def ema_loss_for_log(self) -> float:
        """The loss that the bar shows."""
        return self._mean.value or 0.0

    # -- points

    def before_run(self, trainner: Any) -> None:
        """Say what the experiment is."""
        Logger.print(f"The experiment is {os.fspath(trainner.exp_dir)}", markup=False)

    def before_train(self, trainner: Any) -> None:
        """A bar for the training, and one for its validations."""
        self._bar_interval = max(trainner.cfg.bar_upd_interval, 1)
        validation = getattr(trainner.datapipeline, "validation_dataset", None)
        self.progress_bar = ProgressLogger("training", suffix="iter/s")
        self.progress_bar.add_task("train", "Training", trainner.cfg.max_steps)
        self.progress_bar.add_task("validation", "Validation", len(validation) if validation is not None else None)
        self.progress_bar.reset("validation", visible=False)
        self.progress_bar.update("train", step=trainner.start_steps - 1)
        self.progress_bar.start_task("train")
        self.progress_bar.start()

    def after_train_iter(self, trainner: Any) -> None:
        """The numbers of a step."""
        numbers = _plain({**_about_points(trainner), **trainner.loss_dict})
        if "loss" in numbers:
            if not math.isfinite(numbers["loss"]):
                trainner.check_loss()
            self.bar_info["loss"] = f"{self._mean.take(numbers['loss']):.7f}"
        if trainner.writer:
            _write(trainner.writer, numbers, trainner.global_step)
        if self.progress_bar is not None and trainner.global_step % self._bar_interval == 0:
            if "num_pt" in numbers:
                self.bar_info["num_pts"] = str(numbers["num_pt"])
            self.progress_bar.update("train", step=self._bar_interval, log=self.bar_info)

    def before_val(self, trainner: Any) -> None:
        """A validation begins, whatever became of the one before; show its bar."""
        self.losses_test = dict.fromkeys(self.losses_test, 0.0)
        if self.progress_bar is not None:
            self.progress_bar.reset("validation", visible=True)

    def after_val_iter(self, trainner: Any) -> None:
        """Add up its metrics, and write its images."""
        if self.progress_bar is not None:
            self.progress_bar.update("validation", step=1)
        metrics = trainner.metric_dict
        for key in self.losses_test:
            if key in metrics:
                self.losses_test[key] += float(metrics[key])
        if trainner.writer:
            view = os.path.basename(str(metrics.get("rgb_file_name", "0")))
            for name, key in IMAGES.items():
                if key in metrics:
                    trainner.writer.write_image(f"test_view_{view}/{name}", metrics[key].squeeze(), trainner.iter)

    def after_val(self, trainner: Any) -> None:
        """The means of the validation."""
        from rich.table import Table

        size = max(trainner.val_dataset_size, 1)
        means = {key: total / size for key, total in self.losses_test.items() if key in trainner.metric_dict}
        if self.progress_bar is not None:
            self.progress_bar.reset("validation", visible=False)
        if not means:
            return
        table = Table(title=f"validation after step {trainner.iter}", min_width=32)
        for key, value in means.items():
            table.add_column(key, justify="right", style="cyan")
            if trainner.writer:
                trainner.writer.write_scalar(f"test/loss_viewpoint - {key}", value, trainner.iter)
        table.add_row(*(f"{value:.5f}" for value in means.values()))
        Logger.print(table)

    def after_train(self, trainner: Any) -> None:
        """The bar goes."""
        self.exception()

    def exception(self) -> None:
        """The bar goes, if there is one."""
        if self.progress_bar is not None:
            self.progress_bar.stop()

    # -- state

    def state_dict(self) -> dict[str, Any]:
        """The smoothed loss."""
        return {"loss": self._mean.value} if self._mean.value is not None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from it."""
        self._mean.value = state.get("loss")


def _about_points(trainner: Any) -> dict[str, Any]:
    """How many points there are, and how fast their positions learn, where there are any."""
    points: Any = getattr(trainner.model, "point_cloud", None)
    found: dict[str, Any] = {}
    if hasattr(points, "__len__"):
        found["num_pt"] = len(points)
    for group in getattr(trainner.optimizer, "param_groups", ()):
        if group.get("name") == "point_cloud.position":
            found["pos_lr"] = group["lr"]
            break
    return found


def _write(writer: Any, numbers: dict[str, Any], step: int) -> None:
    """All numbers of a step, at once where a writer can."""
    if hasattr(writer, "write_scalars"):
        writer.write_scalars(numbers, step)
        return
    for name, value in numbers.items():
        writer.write_scalar(name, value, step)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Numbers and tensors with one element as numbers, read together; anything else is left out."""
    single = {key: value for key, value in values.items() if _is_number(value)}
    detached = [value.detach() if hasattr(value, "detach") else value for value in single.values()]
    return dict(zip(single, read_numbers(detached), strict=True))


def _is_number(value: Any) -> bool:
    numel = getattr(value, "numel", None)
    return isinstance(value, (int, float)) or (callable(numel) and numel() == 1) or hasattr(value, "item")

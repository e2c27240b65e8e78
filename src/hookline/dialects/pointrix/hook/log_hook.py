"""LogHook: writes the numbers of every step and the images of validations; shows a progress bar and a table."""

from __future__ import annotations

import math
import os
from typing import Any

from hookline.dialects.pointrix.hook.base_hook import Hook
from hookline.dialects.pointrix.logger.console import Logger
from hookline.dialects.pointrix.logger.progress import ProgressLogger
from hookline.dialects.pointrix.utils.visualize import visualize_depth
from hookline.record.history import read_numbers
from hookline.record.smoothing import ExponentialMean

# The weight of the newest loss in the running mean that the bar shows.
NEWEST = 0.4
# The images of a validation: the name under which each is written, and its key in `metric_dict`.
IMAGES = {"depth": "depth", "render": "images", "ground_truth": "gt_images"}


class LogHook(Hook):
    """Writes the `loss_dict` of a step, the number of points and the learning rate of their positions.

    The bar shows the loss as a running mean in which the newest loss has the weight 0.4. It starts with the first loss.
    After a validation, the means of `losses_test` are written and shown as a table. Its images are written one by one.
    Anything that a model or a data set does not have is left out.
    """

    def __init__(self) -> None:
        self._mean = ExponentialMean(NEWEST)
        self.bar_info: dict[str, str] = {}
        self.losses_test: dict[str, float] = {"L1_loss": 0.0, "psnr": 0.0, "ssims": 0.0, "lpips": 0.0}
        self.progress_bar: ProgressLogger | None = None
        self._bar_interval = 10

    @property
    def ema_loss_for_log(self) -> float:
        """Return the loss that the bar shows."""
        return self._mean.value or 0.0

    # -- points

    def before_run(self, trainner: Any) -> None:
        """Show the folder of the experiment."""
        Logger.print(f"experiment folder: {os.fspath(trainner.exp_dir)}", markup=False)

    def before_train(self, trainner: Any) -> None:
        """Add a bar for the training and one for its validations."""
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
        """Write the numbers of a step and update the bar."""
        numbers = _plain({**_describe_points(trainner), **trainner.loss_dict})
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
        """Reset the metrics, even if the previous validation failed, and show the bar of the validation."""
        self.losses_test = dict.fromkeys(self.losses_test, 0.0)
        if self.progress_bar is not None:
            self.progress_bar.reset("validation", visible=True)

    def after_val_iter(self, trainner: Any) -> None:
        """Add the metrics of an item to the totals, and write its images."""
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
                    image = metrics[key].squeeze()
                    shown = visualize_depth(image, tensorboard=True) if key == "depth" and image.ndim == 2 else image
                    trainner.writer.write_image(f"test_view_{view}/{name}", shown, trainner.iter)

    def after_val(self, trainner: Any) -> None:
        """Write and show the means of the validation."""
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
        """Remove the bar."""
        self.exception()

    def exception(self) -> None:
        """Remove the bar, if there is one."""
        if self.progress_bar is not None:
            self.progress_bar.stop()

    # -- state

    def state_dict(self) -> dict[str, Any]:
        """Return the smoothed loss."""
        return {"loss": self._mean.value} if self._mean.value is not None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the smoothed loss."""
        self._mean.value = state.get("loss")


def _describe_points(trainner: Any) -> dict[str, Any]:
    """Return the number of points and the learning rate of their positions, if the model has points."""
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
    """Write all numbers of a step, in one call if the writer supports that."""
    if hasattr(writer, "write_scalars"):
        writer.write_scalars(numbers, step)
        return
    for name, value in numbers.items():
        writer.write_scalar(name, value, step)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers and one-element tensors as numbers, read in one go; leave out anything else."""
    single = {key: value for key, value in values.items() if _is_number(value)}
    detached = [value.detach() if hasattr(value, "detach") else value for value in single.values()]
    return dict(zip(single, read_numbers(detached), strict=True))


def _is_number(value: Any) -> bool:
    numel = getattr(value, "numel", None)
    return isinstance(value, (int, float)) or (callable(numel) and numel() == 1) or hasattr(value, "item")

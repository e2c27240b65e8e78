"""torchtnt: an AutoUnit, which owns the update, with torchtnt's loggers, progress bar and checkpoint."""

from __future__ import annotations

import atexit
from typing import Any

import torch
from torchtnt.framework.auto_unit import AutoUnit
from torchtnt.framework.callback import Callback
from torchtnt.framework.callbacks import DistributedCheckpointSaver, TQDMProgressBar
from torchtnt.framework.train import train as run
from torchtnt.utils.loggers import JSONLogger, TensorBoardLogger

from engines.task import INTERVAL, Task


class Unit(AutoUnit[Any]):
    """The model, as torchtnt calls it."""

    def __init__(self, task: Task) -> None:
        super().__init__(module=task.model, device=torch.device("cpu"), step_lr_interval="step")
        self.task = task
        self.loss: Any = None

    def compute_loss(self, state: Any, data: Any) -> tuple[Any, Any]:
        """Return the loss."""
        return self.task.loss_of(self.module, data), None

    def configure_optimizers_and_lr_scheduler(self, module: Any) -> tuple[Any, Any]:
        """Return the optimizer and the scheduler."""
        return self.task.optimizer, self.task.scheduler

    def on_train_step_end(self, state: Any, data: Any, step: int, results: Any) -> None:
        """Keep the loss for the callback that records it."""
        self.loss = results.loss


class Records(Callback):
    """Records the numbers in a file and in TensorBoard."""

    def __init__(self, task: Task) -> None:
        self.scheduler = task.scheduler
        self.loggers = [JSONLogger(str(task.folder / "metrics.json")), TensorBoardLogger(str(task.folder))]

    def on_train_step_end(self, state: Any, unit: Any) -> None:
        """Write one record."""
        step = unit.train_progress.num_steps_completed
        if step % INTERVAL == 0:
            numbers = {"loss": unit.loss.item(), "lr": self.scheduler.get_last_lr()[0]}
            for logger in self.loggers:
                logger.log_dict(numbers, step)

    def on_train_end(self, state: Any, unit: Any) -> None:
        """Close the files."""
        for logger in self.loggers:
            logger.close()
            atexit.unregister(logger.close)  # it would write the file again, when the folder is gone


def train(task: Task) -> None:
    """Train with an AutoUnit."""
    run(Unit(task), task.data, max_epochs=1, callbacks=everything(task) if task.everything else [])


def everything(task: Task) -> list[Callback]:
    """Return the settings for logging, a progress bar and checkpoints."""
    saver = DistributedCheckpointSaver(str(task.folder / "checkpoints"), save_every_n_epochs=1)
    return [Records(task), TQDMProgressBar(), saver]

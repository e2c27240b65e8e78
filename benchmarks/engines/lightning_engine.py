"""Lightning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lightning.pytorch as lightning
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from engines.task import INTERVAL, Task

if TYPE_CHECKING:
    from torch import Tensor


class Net(lightning.LightningModule):
    """The model, as Lightning calls it."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.net = task.model
        self.loss_of = task.loss_of
        self.parts = {
            "optimizer": task.optimizer,
            "lr_scheduler": {"scheduler": task.scheduler, "interval": "step"},
        }
        self.logs = task.everything

    def training_step(self, batch: Any) -> Tensor:
        """Return the loss."""
        loss = self.loss_of(self.net, batch)
        if self.logs:
            self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> Any:
        """Return the optimizer and the scheduler."""
        return self.parts


def train(task: Task) -> None:
    """Train with a Trainer."""
    off = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
    }
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        default_root_dir=task.folder,
        enable_model_summary=False,
        **(everything(task) if task.everything else off),
    )
    trainer.fit(Net(task), task.data)


def everything(task: Task) -> dict[str, Any]:
    """Return the settings for logging, a progress bar and checkpoints."""
    return {
        "logger": [CSVLogger(task.folder), TensorBoardLogger(task.folder)],
        "log_every_n_steps": INTERVAL,
        "callbacks": [LearningRateMonitor("step"), ModelCheckpoint(task.folder), TQDMProgressBar()],
    }

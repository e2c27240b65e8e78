"""The Trainer of Transformers. Its own file of numbers is written with checkpoints, so a callback writes one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from transformers import Trainer, TrainerCallback, TrainingArguments

from engines.task import INTERVAL, Batches, Task

if TYPE_CHECKING:
    from torch import Tensor


class PlainTrainer(Trainer):
    """A Trainer that computes the loss of the task, on its batches."""

    task: Task

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Tensor:
        """Return the loss."""
        return self.task.loss_of(model, inputs)

    def get_train_dataloader(self) -> Batches:  # type: ignore[override]
        """Return the batches as they are."""
        return self.task.data


class Lines(TrainerCallback):
    """Writes a line per record."""

    def __init__(self, task: Task) -> None:
        self.path = task.folder / "metrics.jsonl"

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Append one record."""
        with open(self.path, "a") as file:
            print(json.dumps({"step": state.global_step, **logs}), file=file)


def train(task: Task) -> None:
    """Train with a Trainer."""
    arguments = TrainingArguments(
        output_dir=str(task.folder),
        use_cpu=True,
        num_train_epochs=1,
        max_grad_norm=0.0,
        remove_unused_columns=False,
        **(everything() if task.everything else nothing()),
    )
    trainer = PlainTrainer(
        task.model,
        arguments,
        train_dataset=task.data,
        optimizers=(task.optimizer, task.scheduler),  # type: ignore[arg-type]  # it takes any scheduler
        callbacks=[Lines(task)] if task.everything else [],
    )
    trainer.task = task
    trainer.train()


def nothing() -> dict[str, Any]:
    """Return nothing but the loop."""
    return {"logging_strategy": "no", "save_strategy": "no", "report_to": [], "disable_tqdm": True}


def everything() -> dict[str, Any]:
    """Return the settings for logging, a progress bar and checkpoints."""
    return {
        "logging_steps": INTERVAL,
        "save_strategy": "epoch",
        "report_to": ["tensorboard"],
        "disable_tqdm": False,
    }

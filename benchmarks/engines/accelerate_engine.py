"""accelerate: a loop written by hand, with its parts prepared, its tracker and its checkpoint."""

from __future__ import annotations

import json
from typing import Any

from accelerate import Accelerator  # type: ignore[import-untyped]
from tqdm import tqdm

from engines.task import INTERVAL, Task


def train(task: Task) -> None:
    """Train with prepared parts."""
    accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir=task.folder)
    model, optimizer, scheduler = accelerator.prepare(task.model, task.optimizer, task.scheduler)
    model.train()
    if task.everything:
        train_with_everything(task, accelerator, model, optimizer, scheduler)
        return
    for batch in task.data:
        optimizer.zero_grad()
        loss = task.loss_of(model, batch)
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()


def train_with_everything(task: Task, accelerator: Accelerator, model: Any, optimizer: Any, scheduler: Any) -> None:
    """Train with logging, a progress bar and checkpoints."""
    accelerator.init_trackers("run")
    with open(task.folder / "metrics.jsonl", "w") as file, tqdm(task.data) as bar:
        for step, batch in enumerate(bar, 1):
            optimizer.zero_grad()
            loss = task.loss_of(model, batch)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            if step % INTERVAL == 0:
                numbers = {"loss": loss.item(), "lr": scheduler.get_last_lr()[0]}
                print(json.dumps({"step": step, **numbers}), file=file, flush=True)
                accelerator.log(numbers, step=step)
                bar.set_postfix(numbers)
    accelerator.save_state(str(task.folder / "checkpoint"))
    accelerator.end_training()

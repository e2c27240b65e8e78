"""A loop written by hand: the reference. Logging, progress bar and checkpoints use tqdm and torch's own tools."""

from __future__ import annotations

import json

import torch

from engines.task import INTERVAL, Task


def train(task: Task) -> None:
    """Train with nothing but the loop."""
    model, optimizer, scheduler = task.model, task.optimizer, task.scheduler
    model.train()
    for batch in task.data:
        optimizer.zero_grad()
        loss = task.loss_of(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
        optimizer.step()
        scheduler.step()


def train_by_hand(task: Task) -> None:
    """Train with logging, a progress bar and checkpoints, as people write it without an engine."""
    from torch.utils.tensorboard.writer import SummaryWriter
    from tqdm import tqdm

    model, optimizer, scheduler = task.model, task.optimizer, task.scheduler
    model.train()
    board = SummaryWriter(task.folder)
    with open(task.folder / "metrics.jsonl", "w") as file, tqdm(task.data) as bar:
        for step, batch in enumerate(bar, 1):
            optimizer.zero_grad()
            loss = task.loss_of(model, batch)
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
            optimizer.step()
            scheduler.step()
            if step % INTERVAL == 0:
                numbers = {"loss": loss.item(), "lr": scheduler.get_last_lr()[0]}
                print(json.dumps({"step": step, **numbers}), file=file, flush=True)
                for name, value in numbers.items():
                    board.add_scalar(name, value, step)
                bar.set_postfix(numbers)
    board.close()
    parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    torch.save(parts, task.folder / "last.pth")

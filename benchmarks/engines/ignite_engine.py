"""Ignite. It has no logger that writes a file, so a handler does this."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver, ProgressBar
from ignite.handlers.tensorboard_logger import OptimizerParamsHandler, TensorboardLogger

from engines.task import INTERVAL, Task

if TYPE_CHECKING:
    from torch import Tensor


def train(task: Task) -> None:
    """Train with an Engine."""
    model, optimizer, scheduler = task.model, task.optimizer, task.scheduler

    def update(_: Engine, batch: Any) -> Tensor:
        model.train()
        optimizer.zero_grad()
        loss = task.loss_of(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotations here
        optimizer.step()
        return loss

    engine = Engine(update)
    engine.add_event_handler(Events.ITERATION_COMPLETED, lambda: scheduler.step())
    if task.everything:
        with open(task.folder / "metrics.jsonl", "w") as file, TensorboardLogger(log_dir=task.folder) as board:
            add_everything(task, engine, file, board)
            engine.run(task.data, max_epochs=1)
    else:
        engine.run(task.data, max_epochs=1)


def numbers_of(loss: Tensor) -> dict[str, float]:
    """Return the numbers to show."""
    return {"loss": loss.item()}


def add_everything(task: Task, engine: Engine, file: Any, board: TensorboardLogger) -> None:
    """Add logging, a progress bar and checkpoints."""
    often = Events.ITERATION_COMPLETED(every=INTERVAL)
    ProgressBar().attach(engine, event_name=often, output_transform=numbers_of)
    board.attach_output_handler(engine, often, tag="training", output_transform=numbers_of)
    board.attach(engine, OptimizerParamsHandler(task.optimizer), often)

    def write(engine: Engine) -> None:
        numbers = {"loss": engine.state.output.item(), "lr": task.scheduler.get_last_lr()[0]}
        print(json.dumps({"step": engine.state.iteration, **numbers}), file=file, flush=True)

    engine.add_event_handler(often, write)
    parts = {"model": task.model, "optimizer": task.optimizer, "scheduler": task.scheduler, "engine": engine}
    saver = Checkpoint(parts, DiskSaver(task.folder / "checkpoints", create_dir=True))
    engine.add_event_handler(Events.EPOCH_COMPLETED, saver)

"""hookline."""

from __future__ import annotations

from typing import Any

from engines.task import INTERVAL, Task
from hookline import Optim, Runner, TrainLoop

WITHOUT_HOOKS = dict.fromkeys(("runtime_info", "timer", "sampler_seed", "logger", "checkpoint"))


def train(task: Task) -> None:
    """Train with a Runner. A scheduler is stepped by a hook, so this one is always there."""
    Runner(
        task.model,
        train=TrainLoop(task.data, task.loss_of, max_epochs=1),
        optim=Optim(task.optimizer, schedulers=[(task.scheduler, "iter")]),
        work_dir=task.folder / "run",
        device="cpu",
        **(everything() if task.everything else {"default_hooks": WITHOUT_HOOKS, "writers": [], "quiet": True}),
    ).train()


def everything() -> dict[str, Any]:
    """Return logging, a progress bar and checkpoints: the default hooks, two writers and the display."""
    return {
        "default_hooks": {"logger": {"interval": INTERVAL}},
        "custom_hooks": [{"type": "ProgressHook"}],
        "writers": ["jsonl", "tensorboard"],
    }

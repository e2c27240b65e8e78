"""MMEngine. It has no progress bar: its log lines on the terminal show the progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mmengine.model import BaseModel
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner

from engines.task import DECAY, INTERVAL, Task

if TYPE_CHECKING:
    from torch import Tensor

WITHOUT_HOOKS = dict.fromkeys(("runtime_info", "timer", "sampler_seed", "logger", "checkpoint"))


class Net(BaseModel):
    """The model, as MMEngine calls it."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.net = task.model
        self.loss_of = task.loss_of

    def forward(self, inputs: Tensor, target: Tensor, mode: str = "tensor") -> Any:
        """Return the loss."""
        return {"loss": self.loss_of(self.net, (inputs, target))}


def train(task: Task) -> None:
    """Train with a Runner."""
    Runner(
        model=Net(task),
        work_dir=str(task.folder),
        train_dataloader=task.data,
        train_cfg={"by_epoch": True, "max_epochs": 1},
        optim_wrapper=OptimWrapper(task.optimizer),
        param_scheduler={"type": "ExponentialLR", "gamma": DECAY, "by_epoch": False},
        randomness={"seed": 0},
        experiment_name=task.folder.name,
        **(everything() if task.everything else {"default_hooks": WITHOUT_HOOKS, "log_level": "ERROR"}),
    ).train()


def everything() -> dict[str, Any]:
    """Return the settings for logging and checkpoints: the default hooks, and a file and TensorBoard."""
    return {
        "default_hooks": {"logger": {"type": "LoggerHook", "interval": INTERVAL}},
        "visualizer": {
            "type": "Visualizer",
            "vis_backends": [{"type": "LocalVisBackend"}, {"type": "TensorboardVisBackend"}],
        },
    }

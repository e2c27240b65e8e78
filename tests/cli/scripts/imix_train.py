"""Train a line through noisy points, written for iMIX."""

import sys

import torch
from imix.engine.hooks.base_hook import HookBase, PriorityStatus
from imix.engine.hooks.builder import HOOKS
from imix.engine.imix_engine import imixEngine


@HOOKS.register_module()
class SayLoss(HookBase):
    def __init__(self):
        super().__init__()
        self._level = PriorityStatus.LOW

    def after_train_epoch(self):
        print(f"epoch {self.trainer.epoch} of {self.trainer.max_epoch}")

    def after_train(self):
        print(f"good {float(self.trainer.output['loss']) < 0.01}")


torch.manual_seed(0)
x = torch.rand(100, 1)
y = 2 * x + 1
batches = list(zip(x.split(10), y.split(10), strict=True))
net = torch.nn.Linear(1, 1)
cfg = {
    "total_epochs": 3,
    "work_dir": sys.argv[1],
    "custom_hooks": [{"type": "SayLoss", "level": "LOW"}],
}
engine = imixEngine(
    cfg,
    model=net,
    data_loader=batches,
    optimizer=torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.5),
    loss_fn=torch.nn.MSELoss(),
)
engine.train()

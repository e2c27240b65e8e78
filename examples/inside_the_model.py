"""Looking inside the model: a hook that watches modules by name, and the built-in one that records statistics.

The net has ten layers. With weights that are too small, the gradients vanish on the way back to the first layer, which
the loss alone does not show.

    python examples/inside_the_model.py
"""

import torch
from torch import nn

from hookline import Hook, Runner, TrainLoop, on_module, runs
from hookline.data import Digits, ResumableLoader
from hookline.steps import cross_entropy


class Silent(Hook):
    """Names the layers in which a unit is off for the whole batch."""

    role = "observer"

    @on_module("layers.*", "forward", every=80)
    def count(self, runner, name, module, outputs):
        """Count the units that are zero for every sample."""
        if isinstance(module, nn.ReLU) and (silent := int((outputs == 0).all(0).sum())):
            print(f"iteration {runner.iter + 1}: {silent} of {outputs.shape[1]} units of {name} are off")


class Deep(nn.Module):
    """Ten layers whose weights have the given size at the beginning."""

    def __init__(self, size):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU())
        for _ in range(9):
            self.layers.extend([nn.Linear(32, 32), nn.ReLU()])
        self.head = nn.Linear(32, 10)
        for parameter in self.layers.parameters():
            nn.init.normal_(parameter, std=size)

    def forward(self, x):
        """Return the logits."""
        return self.head(self.layers(x))


for name, size in (("small", 0.1), ("usual", 0.25)):
    torch.manual_seed(0)
    model = Deep(size)
    runner = Runner(
        model,
        train=TrainLoop(ResumableLoader(Digits("train"), 64, shuffle=True), cross_entropy, max_iters=80),
        optim=torch.optim.SGD(model.parameters(), lr=0.1),
        custom_hooks=[Silent(), {"type": "ActivationStatsHook", "modules": ["layers.1", "layers.19"], "interval": 20}],
        work_dir=f"runs/inside_{name}",
    )
    runner.train()
    run = runs.load(runner.work_dir)
    first, last = (run.final(f"train/gradients/layers.{layer}/norm").value for layer in (1, 19))
    print(f"{name} weights: the gradient is {first:.1e} in the first layer and {last:.1e} in the last")

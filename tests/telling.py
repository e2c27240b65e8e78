"""The module of a project whose hook writes down when each process validates and ends."""

from __future__ import annotations


def telling(samples: int, seconds: float) -> str:
    """Return the text of the module: `samples` of data, and steps of at least some `seconds`."""
    return f"""
import time
import torch
from torch.utils.data import TensorDataset
from hookline import Hook

def samples():
    random = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn({samples}, 4, generator=random), torch.arange({samples}) % 2)

class Tell(Hook):
    def after_train_iter(self, runner):
        time.sleep({seconds})

    def after_val(self, runner):
        self.tell(runner, "validated")

    def after_train(self, runner):
        self.tell(runner, "ended")

    def tell(self, runner, what):
        with open(f"rank_{{runner.rank}}.txt", "a") as file:
            file.write(f"{{what}} {{runner.iter}}\\n")
"""

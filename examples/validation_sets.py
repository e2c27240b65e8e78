"""Several validation sets: a dict of EvalLoops. Each metric has the name of its set.

Training sees clean digits only. Validation asks three questions: clean digits, noisy ones, shifted ones. The best
checkpoint and early stopping follow one of them, which is a name like any other: `noisy/accuracy`.

    python examples/validation_sets.py
"""

import torch
from torch.utils.data import Dataset

from hookline import EvalLoop, Runner, TrainLoop, runs
from hookline.data import Digits, DigitsNet, ResumableLoader
from hookline.hooks import EarlyStoppingHook
from hookline.metrics import accuracy
from hookline.steps import cross_entropy, predict


class Changed(Dataset):
    """Digits that a function has changed. Its random numbers are the same in every validation."""

    def __init__(self, digits, change):
        self.digits, self.change = digits, change

    def __len__(self):
        return len(self.digits)

    def __getitem__(self, index):
        image, target = self.digits[index]
        return self.change(image), target


def noisy(image):
    """Add noise to an image."""
    return (image + 0.3 * torch.randn_like(image)).clamp(0, 1)


def shifted(image):
    """Move an image by one pixel."""
    return image.roll(1, dims=-1)


def check(dataset):
    """Return a loop that measures the accuracy on a dataset."""
    return EvalLoop(ResumableLoader(dataset, 256), predict, metrics={"accuracy": accuracy}, loss=cross_entropy)


torch.manual_seed(0)
model = DigitsNet(width=8)
digits = Digits("val")
runner = Runner(
    model,
    train=TrainLoop(ResumableLoader(Digits("train"), 64, shuffle=True), cross_entropy, max_epochs=20),
    val={"clean": check(digits), "noisy": check(Changed(digits, noisy)), "shifted": check(Changed(digits, shifted))},
    optim=torch.optim.AdamW(model.parameters(), lr=5e-3),
    default_hooks={"checkpoint": {"save_best": "noisy/accuracy", "max_keep_ckpts": 1}, "logger": {"interval": 17}},
    custom_hooks=[EarlyStoppingHook(monitor="noisy/accuracy", patience=3)],
    work_dir="runs/validation_sets",
)
runner.train()
for name in runner.val_loops:
    print(f"{name:8}best accuracy {runs.load(runner.work_dir).best(f'val/{name}/accuracy').value:.3f}")

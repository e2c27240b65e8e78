"""A custom metric: a class with `update`, `compute` and `reset`.

`compute` may return several numbers by name. Each of them is a full metric: it is recorded, and `save_best`, schedulers
and early stopping can use it. Here, the best checkpoint is the one whose weakest digit is recognized best.

    python examples/custom_metric.py
"""

import torch

from hookline import EvalLoop, Runner, TrainLoop, runs
from hookline.data import Digits, DigitsNet, ResumableLoader
from hookline.metrics import accuracy
from hookline.steps import cross_entropy, predict


class Recall:
    """The recall of every class, of all of them on average, and of the weakest."""

    def __init__(self, classes):
        self.classes = classes
        self.reset()

    def reset(self):
        """Forget the last validation."""
        self.found, self.total = torch.zeros(self.classes), torch.zeros(self.classes)

    def update(self, preds, target):
        """Count the samples of a batch, and those that were recognized."""
        target = target.cpu()
        hits = preds.argmax(1).cpu() == target
        self.total += torch.bincount(target, minlength=self.classes)
        self.found += torch.bincount(target[hits], minlength=self.classes)

    def compute(self):
        """Return the results of the whole validation."""
        recall = self.found / self.total.clamp(min=1)
        return {"mean": recall.mean(), "worst": recall.min(), **{str(i): value for i, value in enumerate(recall)}}


torch.manual_seed(0)
model = DigitsNet(width=8)
runner = Runner(
    model,
    train=TrainLoop(ResumableLoader(Digits("train"), 64, shuffle=True), cross_entropy, max_epochs=6),
    val=EvalLoop(ResumableLoader(Digits("val"), 256), predict, metrics={"recall": Recall(10), "accuracy": accuracy}),
    optim=torch.optim.AdamW(model.parameters(), lr=5e-3),
    default_hooks={"checkpoint": {"save_best": "recall/worst", "rule": "greater", "max_keep_ckpts": 1}},
    work_dir="runs/custom_metric",
)
runner.train()
run = runs.load(runner.work_dir)
best = run.best("val/recall/worst", "greater")
print("recall of each digit:", {i: round(run.final(f"val/recall/{i}").value, 2) for i in range(10)})
print(f"the worst digit was best at step {best.step}: {best.value:.2f}")

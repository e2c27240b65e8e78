"""A run whose numbers are small multiples of powers of two, so that every machine computes the same bits.

`python -m tests.engine.exact_run FOLDER` trains it until the middle of its second epoch and leaves the checkpoint that
`tests/engine/test_old_checkpoints.py` resumes from. Make one for every release: see CONTRIBUTING.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hookline import EvalLoop, Hook, Optim, Runner, TrainLoop
from hookline.hooks import EarlyStoppingHook, EMAHook

#: Where it is saved, in iterations: inside the second epoch.
SAVED_AT = 7


class Batches:
    """Return five batches of whole numbers."""

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[Tensor]:
        for number in range(5):
            yield torch.tensor([[number, 1.0], [2.0, number - 1.0]])


class CountBatches(Hook):
    """Counts batches and draws a number for each, so that states of hooks and generators matter."""

    def __init__(self) -> None:
        self.seen = 0
        self.drawn: list[int] = []

    def before_train_iter(self) -> None:
        self.seen += 1
        self.drawn.append(int(torch.randint(1000, ()).item()))

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen, "drawn": list(self.drawn)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen, self.drawn = state["seen"], list(state["drawn"])


def loss_of(model: nn.Module, batch: Tensor) -> Tensor:
    """Return a loss whose gradient is a whole number, so that weights change by multiples of powers of two."""
    noise = torch.randint(4, batch.shape).float()
    loss: Tensor = model(batch + noise).sum()
    return loss


def predict(model: nn.Module, batch: Tensor) -> tuple[Tensor, Tensor]:
    return model(batch), batch


def mean_output(preds: Tensor, target: Tensor) -> Tensor:
    return preds.mean()


def build(folder: Path, **parts: Any) -> Runner:
    """Build the run; `parts` are parameters of the Runner."""
    model = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25, momentum=0.5)
    return Runner(
        model,
        train=TrainLoop(Batches(), loss_of, max_epochs=3),
        val=EvalLoop(Batches(), predict, metrics={"score": mean_output}),
        optim=Optim(optimizer, [torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)], accumulate=2),
        default_hooks={"checkpoint": {"save_best": "score", "rule": "less"}},
        custom_hooks=[
            EMAHook(momentum=0.25),
            EarlyStoppingHook("score", patience=9, rule="less"),
            CountBatches(),
        ],
        work_dir=folder,
        experiment_name="exact",
        device="cpu",
        quiet=True,
        **parts,
    )


def train_half(folder: Path) -> Path:
    """Train until iteration 7, save there, and return the checkpoint."""
    runner = build(folder)

    def stop(runner: Runner) -> None:
        if runner.iter + 1 == SAVED_AT - 1:  # inside a window, so the save waits for its end
            runner.request_save()
            runner.stop("half", for_now=True)

    runner.on("after_train_iter")(stop)
    runner.train()
    return folder / f"iter_{SAVED_AT}.pth"


if __name__ == "__main__":
    print(train_half(Path(sys.argv[1])))

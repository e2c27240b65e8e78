"""Every optimizer of torch, from a config and from Python, with every strategy: one step and one save each.

python -m tests.distributed.optimizer_table    prints the table
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from hookline import Optim, Runner, TrainLoop
from hookline.data.loader import ResumableLoader
from tests.distributed.cases import main, whole

STRATEGIES = ("single", "ddp", "fsdp", "accelerate")
WAYS = ("config", "python")
OPTIMIZERS = [
    name
    for name, each in vars(torch.optim).items()
    if isinstance(each, type) and issubclass(each, torch.optim.Optimizer) and each is not torch.optim.Optimizer
]
#: Optimizers that hookline or torch refuses for a dense model: they need a closure, or sparse gradients.
NEVER = ("LBFGS", "SparseAdam")
#: Optimizers that have no step for sharded parameters.
NOT_SHARDED = ("Adafactor", "Rprop")


#: All processes together take the samples of one batch.
BATCH = 8 // int(os.environ.get("WORLD_SIZE", "1"))


class Net(nn.Linear):
    """A layer that every optimizer takes: Muon updates matrices only."""

    def __init__(self) -> None:
        super().__init__(4, 3, bias=False)


def samples() -> TensorDataset:
    """Return a few samples."""
    numbers = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(8, 4, generator=numbers), torch.arange(8) % 3)


def step(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Return the loss of a batch."""
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def build(folder: Path, strategy: str, name: str, way: str) -> Runner:
    """Return a run of one step and one save."""
    module = "tests.distributed.optimizer_table"
    common: dict[str, Any] = {"strategy": strategy, "device": "cpu", "work_dir": str(folder)}
    if way == "config":
        loader = {"dataset": {"type": f"{module}:samples"}, "batch_size": BATCH}
        return Runner.from_config(
            {
                "model": {"type": f"{module}:Net"},
                "train": {"dataloader": loader, "step": f"{module}:step", "max_iters": 1},
                "optim": {"optimizer": {"type": name, "lr": 0.01}},
                **common,
            }
        )
    torch.manual_seed(0)
    model = Net()
    train = TrainLoop(ResumableLoader(samples(), batch_size=BATCH), step, max_iters=1)
    return Runner(model, train=train, optim=Optim(getattr(torch.optim, name)(model.parameters(), lr=0.01)), **common)


def shown(outcome: str) -> str:
    """Return an outcome as the table shows it."""
    return outcome if outcome.startswith("iter_") else "refused"


def table(folder: str, strategy: str, names: list[str], ways: list[str]) -> dict[str, Any]:
    """Train with each optimizer, and return the checkpoints that were written."""
    found = {}
    for name in names:
        for way in ways:
            work_dir = Path(folder, f"{name}_{way}")
            trained = build(work_dir, strategy, name, way).train()
            weights = [whole(each.detach()).flatten().tolist() for each in trained.parameters()]
            found[f"{name} {way}"] = [*(path.name for path in work_dir.glob("iter_*")), *weights]
    return found


def outcomes(folder: Path, strategy: str) -> dict[str, list[Any]]:
    """Return the checkpoint and the weights, or the error, of every row. After a failure, processes begin again."""
    from tests.distributed.ranks import run

    nproc = 0 if strategy == "single" else 2
    failing = NEVER + (NOT_SHARDED if strategy == "fsdp" else ())
    tried = [([name for name in OPTIMIZERS if name not in failing], list(WAYS))]
    tried += [([name], [way]) for name in failing for way in WAYS]
    found: dict[str, list[Any]] = {}
    for number, (names, ways) in enumerate(tried):
        done = run("table", folder / f"{number}", strategy, names, ways, nproc=nproc, module="optimizer_table")
        first = done.ranks[0]
        for name in names:
            for way in ways:
                row = f"{name} {way}"
                found[row] = first[row] if row in first else [" ".join(first["message"].split())]
    return found


def show() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        columns = {name: outcomes(Path(folder, name), name) for name in STRATEGIES}
    for row in sorted(columns["single"]):
        print(f"{row:20}", *(f"{shown(columns[name][row][0]):11}" for name in STRATEGIES))
    for text in dict.fromkeys(row[0] for column in columns.values() for row in column.values()):
        print(text)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        show()
    else:
        os.environ.setdefault("ACCELERATE_USE_CPU", "true")
        main(globals())

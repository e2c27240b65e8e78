"""The cases of the tests of FSDP: each is a function that runs in every process, and returns what the test compares."""

from __future__ import annotations

import os
import resource
import signal
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hookline import EvalLoop, Hook, Optim, Runner, TrainLoop
from hookline.checkpoint import shard_files
from hookline.engine.metrics import accuracy
from hookline.hooks import EMAHook, FreezeHook
from tests.distributed.cases import ACTS, At, main, predict, seen, step, whole

#: FSDP with units.
WRAPPED = {"type": "fsdp", "wrap": ["Block"]}


class Block(nn.Module):
    """A layer with a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(1))  # fewer elements than processes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.scale * torch.relu(self.inner(x))


def tokens(batch: list[torch.Tensor]) -> float:
    """Return how much a batch counts: a sample of class 2 three times as much as one of class 0."""
    return float((batch[1] + 1).sum())


def step_by_tokens(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    """Return the mean over the tokens of a batch."""
    losses = nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")
    return (losses * (batch[1] + 1)).sum() / (batch[1] + 1).sum()


def build(folder: str, strategy: Any = "fsdp", samples: int = 50, **parts: Any) -> Runner:
    """Return a run of a model with blocks, whose batches are 16 samples in all processes together."""
    torch.manual_seed(7 * int(os.environ.get("RANK", "0")))  # every process creates other weights
    model = nn.Sequential(nn.Linear(8, 9), Block(9), Block(9), nn.BatchNorm1d(9), nn.Linear(9, 3))
    if not int(os.environ.get("RANK", "0")):
        torch.manual_seed(0)
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.5)
    torch.manual_seed(0)
    if parts.pop("plain", True):
        model[3] = nn.Identity()
    data = TensorDataset(torch.randn(samples, 8), torch.randint(3, (samples,)))
    each = 16 // int(os.environ.get("WORLD_SIZE", "1"))
    accumulate = parts.pop("accumulate", 1)
    clip = parts.pop("clip", {})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
    epochs = parts.pop("epochs", 3)
    loss, weigh = (step_by_tokens, tokens) if parts.pop("weigh", False) else (step, None)
    data_of = partial(DataLoader, data)
    given: dict[str, Any] = {
        "train": TrainLoop(data_of(each // accumulate, shuffle=True), loss, max_epochs=epochs, weigh=weigh),
        "val": EvalLoop(data_of(each), predict, metrics={"accuracy": accuracy}, loss=loss, weigh=weigh),
        "optim": Optim(optimizer, [scheduler], accumulate=accumulate, **clip),
        "work_dir": f"{folder}/run",
        "device": "cpu",
        "quiet": True,
        "strategy": strategy if os.environ.get("WORLD_SIZE") else "single",
        **parts,
    }
    return Runner(model, **given)


class Stream:
    """A loader without a length, with this process's half of each batch."""

    def __init__(self, batches: int) -> None:
        torch.manual_seed(3)
        rank, processes = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        whole = [(torch.randn(8, 8), torch.randint(3, (8,))) for _ in range(batches)]
        self.batches = [[each.chunk(processes)[rank] for each in batch] for batch in whole]

    def __iter__(self) -> Any:
        return iter(self.batches)


def train(folder: str, **options: Any) -> dict[str, Any]:
    """Train to the end, with a validation after every epoch, and return the state."""
    hooks: list[Any] = []
    if options.pop("ema", False):
        hooks.append(EMAHook(momentum=0.1))
    if options.pop("freeze", False):
        hooks.append(FreezeHook(["1.*"], until_epoch=1))
    if (skip := options.pop("skip", None)) is not None:
        hooks.append(SkipAt(skip))
    if (batches := options.pop("stream", None)) is not None:
        options["train"] = TrainLoop(Stream(batches), step, max_epochs=2)
    if options.pop("background", False):
        options["default_hooks"] = {"checkpoint": {"async_save": True, "max_keep_ckpts": 2, "save_best": "accuracy"}}
    if not options.pop("saves", True):
        options["default_hooks"] = {"checkpoint": None}
    runner = build(folder, custom_hooks=hooks, **options)
    found: list[dict[str, Any]] = []
    runner.on("after_val_epoch")(lambda runner, metrics: found.append(dict(metrics)))
    runner.train()
    averaged = [hook.averaged_state_dict() for hook in hooks if isinstance(hook, EMAHook)]
    state = {"lr": runner.optims.sole.learning_rates(), "updates": runner.updates, "metrics": found}
    state["averaged"] = [whole(each).tolist() for own in averaged for each in own.values()]
    return seen(runner) | state


class SkipAt(Hook):
    """Skips one batch after its backward pass, so that its window is dropped."""

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration

    def after_backward(self, runner: Runner) -> None:
        """Skip."""
        if runner.iter == self.iteration:
            runner.skip_step("planted")


def several(folder: str, runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Train several runs, one after the other, in the same processes."""
    return {name: train(f"{folder}/{name.partition(':')[0]}", **options) for name, options in runs.items()}


def killed(folder: str) -> dict[str, Any]:
    """Kill a process while the parts of epoch 2 are written. The other one waits for it."""
    attempt, write_parts = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), shard_files._write_parts

    def dying(parts: list[Any], path: Path, temporary: Path, writers: Any) -> Any:
        if (attempt, writers.rank, path.name) == (0, 1, "epoch_2.dcp"):
            (temporary / "__1_0.distcp").write_bytes(b"half of it")
            os.kill(os.getpid(), signal.SIGKILL)
        return write_parts(parts, path, temporary, writers)

    shard_files._write_parts = dying
    before = sorted(path.name for path in Path(folder, "run").glob("*") if ".dcp" in path.name)
    return train(folder, strategy=WRAPPED, resume=attempt > 0) | {"attempt": attempt, "before": before}


def limited(folder: str) -> dict[str, Any]:
    """Let one process run out of space for its part of a checkpoint."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(runner: Runner) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))

    runner = build(folder, strategy=WRAPPED, custom_hooks=[At(5, 1, limit)])
    try:
        runner.train()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    return seen(runner)


def act(folder: str, what: str) -> dict[str, Any]:
    """Do something in rank 1, in the middle of an epoch."""
    runner = build(folder, strategy=WRAPPED, custom_hooks=[At(5, 1, ACTS[what])])
    runner.train()
    return seen(runner)


if __name__ == "__main__":
    main(globals())

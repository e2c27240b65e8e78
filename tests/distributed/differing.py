"""Processes that do different things at the same iteration. `test_differing` starts these cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from hookline import EvalLoop, Hook, Optim, Runner
from tests.distributed import cases

SHORT = {"type": "ddp", "timeout": 20}


class OnMain(Hook):
    """Does nothing, at points where the processes agree on skipped batches, in the main process only."""

    ranks = "main"

    def before_train_iter(self, runner: Runner) -> None:
        """Do nothing."""

    def before_backward(self, runner: Runner) -> None:
        """Do nothing."""

    def after_backward(self, runner: Runner) -> None:
        """Do nothing."""

    def before_optimizer_step(self, runner: Runner) -> None:
        """Do nothing."""


class Fails(Hook):
    """An observer that fails in one process."""

    role = "observer"
    on_error = "disable"

    def before_train_iter(self, runner: Runner) -> None:
        """Fail once."""
        if runner.iter == 2 and runner.rank == 1:
            raise ValueError("only here")

    def before_optimizer_step(self, runner: Runner) -> None:
        """Do nothing."""


def hooks_of_one_process(folder: str) -> dict[str, Any]:
    """Train with a hook of the main process, and with one that is disabled in the other process."""
    found = {}
    for hook in (OnMain(), Fails()):
        name = type(hook).__name__
        runner = cases.build(f"{folder}/{name}", custom_hooks=[hook], strategy=SHORT)
        runner.train()
        found[name] = {key: value for key, value in cases.seen(runner).items() if key in ("iter", "hash")}
    return found


def logger_fails(folder: str) -> dict[str, Any]:
    """Let a hook that exchanges numbers fail in one process, although it may be disabled."""
    from hookline.hooks import LoggerHook

    class Log(LoggerHook):
        on_error = "disable"

        def after_train_iter(self, runner: Runner, batch_idx: int) -> None:
            if runner.iter == 2 and runner.rank == 1:
                raise ValueError("only here")
            super().after_train_iter(runner, batch_idx)

    cases.build(folder, default_hooks={"logger": Log(interval=1)}, strategy=SHORT).train()
    return {}


def skips_in_the_step(folder: str) -> dict[str, Any]:
    """Skip a batch where the other process cannot know of it."""

    def step(model: Any, batch: Any) -> Any:
        if runner.rank == 1 and runner.iter == 2:
            runner.skip_step("bad")
        return cases.step(model, batch)

    runner = cases.build(folder, strategy=SHORT)
    runner.train_loop.step = step
    runner.train()
    return {}


def calls_back(folder: str) -> dict[str, Any]:
    """Ask for a save with a callback, in a process that does not write."""

    def ask(runner: Runner) -> None:
        if runner.rank == 1:
            runner.request_save("mine.pth", done=print)

    runner = cases.build(folder, strategy=SHORT)
    runner.on("after_train_iter")(ask)
    runner.train()
    return {}


class Own:
    """A metric that each process has for itself."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def reset(self) -> None:
        """Do nothing."""

    def update(self, outputs: Any, target: Any) -> None:
        """Do nothing."""

    def compute(self) -> float:
        """Return another number in each process."""
        return 1.0 - 2 * self.rank


def metrics(folder: str) -> dict[str, Any]:
    """Validate with a metric that differs between the processes."""
    import os

    own = Own(int(os.environ["RANK"]))
    val = EvalLoop([(torch.zeros(4, 8), torch.zeros(4, dtype=torch.long))] * 2, cases.predict, metrics={"own": own})
    cases.build(folder, val=val, strategy=SHORT).train()
    return {}


def rates(folder: str) -> dict[str, Any]:
    """Train with another learning rate in each process."""
    import os

    runner = cases.build(folder, strategy=SHORT)
    runner.optim = Optim(torch.optim.SGD(runner.model.parameters(), lr=0.1 + int(os.environ["RANK"])))
    runner.train()
    return {}


def again(folder: str) -> dict[str, Any]:
    """Begin another run after one that failed in one process."""

    def fail(runner: Runner) -> None:
        if runner.rank == 1 and runner.iter == 1:
            raise ValueError("planted")

    messages = []
    for number in range(2):
        runner = cases.build(f"{folder}/{number}", strategy=SHORT)
        if not number:
            runner.on("after_train_iter")(fail)
        try:
            runner.train()
        except Exception as error:
            messages.append(str(error).splitlines()[0])
    return {"messages": messages}


def records(folder: str) -> dict[str, Any]:
    """Record numbers of one process and extremes, and resume after an epoch with values that are not recorded yet."""
    smoothing = [
        {"match": "train/loss", "method": "max", "log_name": "train/worst"},
        {"match": "train/loss", "method": "min", "log_name": "train/least"},
        {"match": "train/loss", "window_size": "global", "log_name": "train/all"},
    ]

    def note(runner: Runner) -> None:
        if runner.iter in (1, 10) and runner.rank == 1:
            runner.hub.update_scalar("rare", 5.0)

    def found(name: str, epochs: tuple[int, ...]) -> list[dict[str, float]]:
        for epoch in epochs:
            runner = cases.build(
                f"{folder}/{name}",
                samples=96,
                epochs=epoch,
                default_hooks={"logger": {"interval": 4, "smoothing": smoothing}},
                resume=epoch != epochs[0],
            )
            runner.on("after_train_iter")(note)
            runner.on("after_val_epoch")(lambda runner: runner.hub.update_scalar("val/rank", 10.0 * runner.rank))
            runner.train()
            last = runner.hub.get_info("last_loss")
        lines = Path(folder, name, "run", "metrics.jsonl").read_text().splitlines()
        times = ("train/time", "train/data_time", "val/time", "val/data_time")
        read = [json.loads(line) for line in lines]
        return [*({key: value for key, value in each.items() if key not in times} for each in read), {"last": last}]

    return {"whole": found("whole", (2,)), "resumed": found("resumed", (1, 2))}


if __name__ == "__main__":
    cases.main(globals())

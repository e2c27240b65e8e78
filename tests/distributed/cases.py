"""The cases of the tests: each is a function that runs in every process, and returns what the test compares."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from hookline import EvalLoop, Hook, Optim, Runner, TrainLoop
from hookline.engine.metrics import accuracy
from hookline.errors import exit_code_of
from hookline.integrations.own_loop import Session


def step(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Return the loss of a batch."""
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def predict(model: nn.Module, batch: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return outputs and targets."""
    return model(batch[0]), batch[1]


def build(folder: str, batch: int = 16, samples: int = 50, epochs: int = 3, **parts: Any) -> Runner:
    """Return a run in which all processes together take batches of this size."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    data = TensorDataset(torch.randn(samples, 8), torch.randint(3, (samples,)))
    each = batch // int(os.environ.get("WORLD_SIZE", "1"))
    accumulate, clip = parts.pop("accumulate", 1), parts.pop("clip", None)
    given: dict[str, Any] = {
        "train": TrainLoop(DataLoader(data, batch_size=each // accumulate, shuffle=True), step, max_epochs=epochs),
        "val": EvalLoop(DataLoader(data, batch_size=each), predict, metrics={"accuracy": accuracy}, loss=step),
        "optim": Optim(torch.optim.AdamW(model.parameters(), lr=0.01), accumulate=accumulate, clip_norm=clip),
        "work_dir": f"{folder}/run",
        "device": "cpu",
        "quiet": True,
        **parts,
    }
    return Runner(model, **given)


def whole(value: Any) -> Tensor:
    """Return all of a tensor that may be sharded."""
    found: Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
    return found


def seen(runner: Runner) -> dict[str, Any]:
    """Return what a run has come to."""
    weights = torch.cat([whole(parameter.detach()).flatten() for parameter in runner.model.parameters()])
    return {
        "iter": runner.iter,
        "hash": hashlib.sha256(weights.numpy().tobytes()).hexdigest(),
        "weights": weights.tolist(),
        "stopped": [runner.stopped.reason, runner.stopped.by],
    }


def by_tokens(folder: str, accumulate: int = 1, said: bool = False) -> dict[str, Any]:
    """Train with batches that count by their tokens: a sample of class c has 1 + c of them."""

    def tokens(batch: list[Tensor]) -> Tensor:
        return (1 + batch[1]).sum()

    def loss_of(model: nn.Module, batch: list[Tensor]) -> Tensor:
        each = nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")
        return (each * (1 + batch[1])).sum() / tokens(batch)

    def own(model: nn.Module, batch: list[Tensor], optim: Any) -> dict[str, Tensor]:
        optim.weigh(tokens(batch))
        loss = loss_of(model, batch)
        optim.update(loss)
        return {"loss": loss}

    runner = build(folder, samples=50, accumulate=accumulate)
    loader, weigh = runner.train_loop.dataloader, None if said else tokens
    runner._host.replace_training(TrainLoop(loader, own if said else loss_of, max_epochs=3, weigh=weigh))
    runner.val_loops[""] = EvalLoop(loader, loss=loss_of, weigh=tokens)
    found: list[float] = []
    runner.on("after_val_epoch")(lambda runner, metrics: found.append(metrics["loss"]))
    runner.train()
    return seen(runner) | {"losses": found}


def train(
    folder: str, samples: int = 50, accumulate: int = 1, epochs: int = 3, resume: bool = False, **parts: Any
) -> dict[str, Any]:
    """Train to the end, with a record and a validation after every epoch."""
    own = {"default_hooks": {"logger": {"interval": 1000}}, **parts}
    runner = build(folder, samples=samples, accumulate=accumulate, epochs=epochs, resume=resume, **own)
    found: list[dict[str, Any]] = []
    runner.on("after_val_epoch")(lambda runner, metrics: found.append(dict(metrics)))
    runner.train()
    return seen(runner) | {"metrics": found}


class At(Hook):
    """Does something in one process, after one iteration."""

    def __init__(self, iteration: int, rank: int, act: Callable[[Runner], None]) -> None:
        self.iteration, self.rank, self.act = iteration, rank, act

    def after_train_iter(self, runner: Runner) -> None:
        """Act."""
        if runner.iter == self.iteration and runner.rank == self.rank:
            self.act(runner)


def raises(runner: Runner) -> None:
    """Fail."""
    raise ValueError("planted")


ACTS: dict[str, Callable[[Runner], None]] = {
    "raise": raises,
    "stop": lambda runner: runner.stop("enough"),
    "save": lambda runner: runner.request_save(),
    "validate": lambda runner: runner.request_val(),
    "SIGTERM": lambda runner: os.kill(os.getpid(), signal.SIGTERM),
    "SIGKILL": lambda runner: os.kill(os.getpid(), signal.SIGKILL),
}


def act(folder: str, what: str, rank: int = 1, iteration: int = 5) -> dict[str, Any]:
    """Do something in one process, in the middle of an epoch."""
    runner = build(folder, custom_hooks=[At(iteration, rank, ACTS[what])])
    validated: list[int] = []
    runner.on("after_val_epoch")(lambda runner: validated.append(runner.iter))
    runner.train()
    return seen(runner) | {"validated": validated}


def killed(folder: str, iterations: list[int], own_loop: bool = False) -> dict[str, Any]:
    """Kill a process in each attempt but the last, at random places of an epoch. The loop may be one of the user."""
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    hooks = [At(iterations[attempt], attempt % 2, ACTS["SIGKILL"])] if attempt < len(iterations) else []
    checkpoint = {"checkpoint": {"by_epoch": False, "interval": 3}}
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(64, 8), torch.randint(3, (64,)))
    train = TrainLoop(DataLoader(data, batch_size=4, shuffle=True), step, max_epochs=4)
    runner = build(folder, train=train, custom_hooks=[*hooks, At(-1, 0, raises)], default_hooks=checkpoint)
    if own_loop:
        with Session(runner) as run:
            for batch in run:
                run.step(step(run.model, batch))
    else:
        runner.train()
    return seen(runner) | {"attempt": attempt}


def interrupted(folder: str, kind: str, batch: int = 16, fail: bool = False) -> dict[str, Any]:
    """Fail in the middle of an epoch of four iterations, after a save there, or resume from it."""
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(64, 8), torch.randint(3, (64,)))
    world = int(os.environ.get("WORLD_SIZE", "1"))
    each = batch // world
    if kind == "stateful":
        own = Subset(data, range(int(os.environ.get("RANK", "0")), 64, world))
        loader: Any = StatefulDataLoader(own, batch_size=each, shuffle=True)
    elif kind == "list":
        loader = [data[begin : begin + each] for begin in range(0, 64, each)]
    else:
        loader = DataLoader(data, batch_size=each, shuffle=True)
    train = TrainLoop(loader, step, max_epochs=3)
    hooks = [At(6, 0, raises)] if fail else []
    checkpoint = {"checkpoint": {"by_epoch": False, "interval": 6}}
    runner = build(folder, train=train, resume=not fail, default_hooks=checkpoint, custom_hooks=hooks)
    runner.train()
    return seen(runner)


def bad_loss(folder: str) -> dict[str, Any]:
    """Return a loss that is not a number, in one process and for one batch, which a hook skips."""

    def sometimes(model: nn.Module, batch: list[Tensor]) -> Tensor:
        return step(model, batch) * (float("nan") if runner.iter == 5 and runner.rank == 1 else 1.0)

    torch.manual_seed(1)
    data = TensorDataset(torch.randn(48, 8), torch.randint(3, (48,)))
    train = TrainLoop(DataLoader(data, batch_size=4), sometimes, max_epochs=2)
    runner = build(folder, train=train, custom_hooks=[{"type": "CheckInvalidLossHook", "policy": "skip"}])
    runner.train()
    return seen(runner) | {"updates": runner.updates}


#: Ways to wait for the other processes.
TALKS: dict[str, Callable[[Any], Any]] = {
    "barrier": lambda runner: torch.distributed.barrier(),
    "strategy": lambda runner: runner.strategy.gather(runner.iter),
    "group": lambda runner: torch.distributed.all_reduce(torch.ones(1), group=runner.strategy.group.agreement),
}


class OnMain(Hook):
    """Runs in the main process only, and may try to talk to the others there."""

    ranks = "main"

    def __init__(self, talk: str = "") -> None:
        self.talk = talk
        self.calls = 0

    def after_train_iter(self, runner: Runner) -> None:
        """Count, or gather something."""
        self.calls += 1
        if self.talk:
            TALKS[self.talk](runner)
        if runner.iter == 5:
            runner.stop("enough")


class Busy(Hook):
    """Keeps rank 1 busy for a while before it looks for the others again."""

    def after_train_iter(self, runner: Runner) -> None:
        """Sleep."""
        if runner.rank == 1:
            time.sleep(1.0)


def on_main(folder: str, talk: str, busy: bool = False) -> dict[str, Any]:
    """Train with a hook of the main process."""
    hook = OnMain(talk)
    runner = build(folder, custom_hooks=[hook, *([Busy()] if busy else [])])
    runner.train()
    return seen(runner) | {"calls": hook.calls}


def different(folder: str, what: str) -> dict[str, Any]:
    """Train something else in each process."""
    rank = int(os.environ["RANK"])
    if what == "hooks":
        build(folder, custom_hooks=[OnMain()] * rank).train()
    elif what == "samples":
        build(folder, samples=50 + rank).train()
    elif what == "model":
        model = nn.Sequential(nn.Linear(8, 16 + rank), nn.Linear(16 + rank, 3))
        optim = Optim(torch.optim.SGD(model.parameters(), lr=0.1))
        Runner(model, train=build(folder).train_loop, optim=optim, work_dir=f"{folder}/run", device="cpu").train()
    elif what == "static_graph":
        build(folder, accumulate=2, strategy={"type": "ddp", "static_graph": True}).train()
    elif what in ("batches", "streams"):
        batches = [(torch.randn(4, 8), torch.randint(3, (4,))) for _ in range(6 + rank)]
        loader: Any = iter_of(batches) if what == "batches" else stream_of(batches)
        runner = build(folder, train=TrainLoop(loader, step, max_epochs=2))
        runner.train()
        return seen(runner)
    return {}


class iter_of:  # noqa: N801  # reads like a function
    """A loader with a length, whose order hookline does not know."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Any:
        return iter(self.batches)


class stream_of:  # noqa: N801  # reads like a function
    """A loader without a length."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Any:
        return iter(self.batches)


def main(cases: dict[str, Any]) -> None:
    """Run one case, and write what it returned."""
    _, case, folder, arguments = sys.argv
    result: dict[str, Any] = {}
    began = time.monotonic()
    try:
        result = cases[case](folder, *json.loads(arguments))
    except BaseException as error:
        code = error.code if isinstance(error, SystemExit) else exit_code_of(error)
        result = {"error": type(error).__name__, "message": str(error), "code": code}
        sys.exit(code)
    finally:
        result["seconds"] = time.monotonic() - began
        rank = os.environ.get("RANK", "0")  # MPI's number is known only now
        Path(folder, f"rank_{rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(globals())

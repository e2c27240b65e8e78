"""The cases of the tests of loops that the user writes, in several processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline.hooks import EMAHook
from hookline.integrations.own_loop import Session
from hookline.strategies import group
from tests.distributed import cases, fsdp_cases
from tests.distributed.cases import ACTS, At, main, seen, step

if TYPE_CHECKING:
    from torch import nn

    from hookline import Runner


def train(runner: Runner, own: bool) -> dict[str, Any]:
    """Train with the loop of a Runner, or with one of the user."""
    if not own:
        runner.train()
        return seen(runner)
    with Session(runner) as run:
        for batch in run:
            run.step(step(run.model, batch))
    return seen(runner)


def ddp(folder: str, own: bool, accumulate: int = 1) -> dict[str, Any]:
    """Train copies of a model."""
    return train(cases.build(folder, accumulate=accumulate, clip=0.5, custom_hooks=[EMAHook()]), own)


def fsdp(folder: str, own: bool, accumulate: int = 1) -> dict[str, Any]:
    """Train a sharded model."""
    return train(fsdp_cases.build(folder, accumulate=accumulate, strategy=fsdp_cases.WRAPPED), own)


def evaluated(model: nn.Module, runner: Runner) -> float:
    """Return a number that depends on the weights, and is the same in all processes."""
    return float(sum(parameter.abs().sum() for parameter in model.parameters()) + runner.iter)


def reports(folder: str, fail: bool = False, resume: bool = False) -> dict[str, Any]:
    """Validate in the loop of the user, with best checkpoints."""
    best = {"checkpoint": {"save_best": "size", "rule": "less"}}
    hooks = [EMAHook(), *([At(8, 1, ACTS["raise"])] if fail else [])]
    runner = cases.build(folder, val=None, default_hooks=best, custom_hooks=hooks, resume=resume)
    found = []
    with Session(runner) as run:
        for epoch in run.epochs():
            for batch in epoch:
                run.step(step(run.model, batch))
            with run.evaluating() as model:
                found.append(evaluated(model, runner))
                run.report({"size": found[-1]})
    return seen(runner) | {"found": found}


def misused(folder: str, how: str) -> dict[str, Any]:
    """Make a mistake that only several processes notice."""
    group.MEETING = 2.0
    runner = cases.build(folder)
    with Session(runner) as run:
        for batch in run:
            if how == "break" and runner.rank == 0 and runner.iter == 2:
                break
            if how == "model":
                run.step(step(runner.model, batch))
            elif how == "skip":
                run.skip("not this one")
            else:
                run.step(step(run.model, batch))
            if how == "report":
                run.report({"score": float(runner.rank)})
    return seen(runner)


def acts(folder: str, what: str) -> dict[str, Any]:
    """Do something in one process, in the middle of an epoch."""
    runner = cases.build(folder, custom_hooks=[At(5, 1, ACTS[what])])
    return train(runner, own=True)


if __name__ == "__main__":
    main(globals())

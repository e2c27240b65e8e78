"""Before training, all processes must be about to train the same thing, on the same number of batches."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from hookline.errors import DistributedError
from hookline.resume.facts import samples_of

if TYPE_CHECKING:
    from hookline.engine.run import Run
    from hookline.optim.optim import Optim


def compare_processes(runner: Run) -> None:
    """Refuse processes that would train different things. If one has fewer batches, every pass ends with it."""
    loop = runner.train_loop
    everyone = runner.strategy.gather((describe(runner), loop.length))
    first = everyone[0][0]
    for rank, (theirs, _) in enumerate(everyone):
        for what, value in theirs.items():
            if value != first[what]:
                error = DistributedError(
                    f"{what} differs between rank 0 and rank {rank}, but all processes must train the same:\n  "
                    + _difference(first[what], value, rank)
                )
                error.was_reported = True  # all processes raise it
                raise error
    lengths = [length for _, length in everyone if length is not None]
    if len(lengths) == len(everyone) and min(lengths) != max(lengths):
        runner.terminal.say(
            f"the processes have different numbers of batches ({', '.join(map(str, lengths))}): every pass ends with "
            f"the shortest, after {min(lengths)}"
        )
        loop.limit_batches = min(lengths)


def describe(runner: Run) -> dict[str, str]:
    """Return what must be the same in all processes."""
    parameters, loop = runner.model.named_parameters(), runner.train_loop
    return {
        "the plan": "\n".join(entry.label for entry in runner.plan),
        "the config": repr(runner.config),
        "the model": "\n".join(f"{name} {tuple(each.shape)}" for name, each in parameters),
        "the optimizer": "\n".join(
            f"{name} {type(optim.optimizer).__name__} {each}"
            for name, optim in runner.optims.items()
            for each in (_options(optim), *map(_group, optim.optimizer.param_groups))
        ),
        "the length of training": f"{loop.max_epochs} epochs, {loop.max_iters} iterations",
        "the precision": runner.precision,
        "the number of samples": str(samples_of(loop.dataloader)),
        "the seed": str(runner.seed),
    }


def _options(optim: Optim) -> str:
    return f"accumulate={optim.accumulate} clip={optim.clip}"


def _group(group: dict[str, Any]) -> str:
    """Return the options of a parameter group, and how many parameters it has."""
    plain = {name: value for name, value in group.items() if isinstance(value, (bool, int, float, str, tuple))}
    return " ".join([*(f"{name}={value}" for name, value in plain.items()), f"parameters={len(group['params'])}"])


def _difference(first: str, second: str, rank: int) -> str:
    """Return the first lines in which two descriptions differ."""
    pairs = zip_longest(first.splitlines(), second.splitlines(), fillvalue="")
    here, there = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    return f"rank 0: {here.strip()[:500]}\n  rank {rank}: {there.strip()[:500]}"

"""Before training, all processes must be about to train the same thing, on the same number of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline.data.sharing import EveryNth, first_indices
from hookline.data.sources import as_resumable
from hookline.errors import ConfigError
from hookline.resume.facts import samples_of
from hookline.strategies.differences import refuse_difference

if TYPE_CHECKING:
    from hookline.engine.run import Run
    from hookline.optim.optim import Optim


#: The order of a loader whose batches are shared by position, and what to do if it differs.
ORDER = "the order of the data"
HINTS = {
    ORDER: "\n  each process takes its share of one order, so all have to draw the same: seed the generator of the "
    "sampler with the same number; if the sampler shares the data itself, set its attribute shares_data = True"
}


def compare_processes(runner: Run) -> None:
    """Refuse processes that would train different things. If one has fewer batches, every pass ends with it."""
    refuse_static_graph(runner)
    loop = runner.train_loop
    everyone = runner.strategy.gather((describe(runner), loop.length))
    first = everyone[0][0]
    for rank, (theirs, _) in enumerate(everyone):
        for what, value in theirs.items():
            refuse_difference(what, first[what], value, rank, HINTS.get(what, ""))
    lengths = [length for _, length in everyone if length is not None]
    if len(lengths) == len(everyone) and min(lengths) != max(lengths):
        runner.terminal.say(
            f"the processes have different numbers of batches ({', '.join(map(str, lengths))}): every pass ends with "
            f"the shortest, after {min(lengths)}"
        )
        loop.limit_batches = min(lengths)


def refuse_static_graph(runner: Run) -> None:
    """Refuse a setting of DDP with which a window of several backward passes ends in an internal error of torch."""
    long = [optim.accumulate for optim in runner.optims.values() if optim.accumulate > 1]
    if long and getattr(runner.wrapped, "static_graph", False):
        error = ConfigError(
            f"the strategy '{runner.strategy.name}': static_graph expects every backward pass to sync the gradients, "
            f"but accumulate={long[0]} holds this back inside a window; remove one of them"
        )
        error.was_reported = True  # type: ignore[attr-defined]  # all processes raise it
        raise error


def describe(runner: Run) -> dict[str, str]:
    """Return what must be the same in all processes."""
    loop = runner.train_loop
    loaders: list[tuple[str, Any]] = [("train", loop.dataloader)]
    for stage, loops in (("val", runner.val_loops), ("test", runner.test_loops)):
        loaders += [(f"{stage} {name}".strip(), each.dataloader) for name, each in loops.items()]
    return {
        "the plan": "\n".join(entry.label for entry in runner.plan),
        "the config": repr(runner.config),
        "the optimizer": "\n".join(
            f"{name} {type(optim.optimizer).__name__} {each}"
            for name, optim in runner.optims.items()
            for each in (_options(optim), *map(_group, optim.optimizer.param_groups))
        ),
        "the length of training": f"{loop.max_epochs} epochs, {loop.max_iters} iterations",
        "the precision": runner.precision,
        "the number of samples": str(samples_of(loop.dataloader)),
        "the loader": "\n".join(f"{name}: {_batches(each)}" for name, each in loaders),
        ORDER: first_indices(loop.dataloader, runner.seed),
        "the seed": str(runner.seed),
    }


def _batches(loader: Any) -> str:
    """Return the options of a loader that decide which samples a batch has."""
    resumable = as_resumable(loader)
    batches = resumable.order if resumable is not None else getattr(loader, "batch_sampler", None)
    batches = batches.batches if isinstance(batches, EveryNth) else batches
    kinds = [type(each).__name__ for each in (loader, batches, getattr(batches, "sampler", None)) if each is not None]
    names = ("batch_size", "shuffle", "drop_last")
    return ", ".join([*kinds, *(f"{name}={getattr(batches, name)}" for name in names if hasattr(batches, name))])


def _options(optim: Optim) -> str:
    return f"accumulate={optim.accumulate} clip={optim.clip}"


def _group(group: dict[str, Any]) -> str:
    """Return the options of a parameter group, and how many parameters it has."""
    plain = {name: value for name, value in group.items() if isinstance(value, (bool, int, float, str, tuple))}
    return " ".join([*(f"{name}={value}" for name, value in plain.items()), f"parameters={len(group['params'])}"])

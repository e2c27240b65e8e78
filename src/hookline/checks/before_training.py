"""Everything that is checked before the first step, in one order. Each check has its own file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hookline.checks.evaluations import check_evaluations
from hookline.checks.optimizers import check_optims, check_parameters
from hookline.checks.processes import compare_processes
from hookline.checks.reach import report_unreached
from hookline.checks.schedules import check_schedules
from hookline.common.checks import check_workers
from hookline.common.numbers import count
from hookline.data.batches import is_empty
from hookline.errors import ConfigError, DataError
from hookline.state.hook_states import check_states_can_be_loaded, check_states_can_be_saved
from hookline.state.parts import check_model_state

if TYPE_CHECKING:
    from hookline.engine.loop_specs import EvalLoop, TrainLoop
    from hookline.engine.run import Run


def check_before_training(run: Run) -> None:
    """Refuse a run that would fail or train something else than it says, and warn about settings without an effect."""
    if not run.strategy.acts_alone:
        compare_processes(run)
    run.reported = set()
    check_model_state(run.model)
    check_watched_modules(run)
    check_skips(run)
    check_optims(run)
    check_schedules(run)
    report_unreached(run)
    check_evaluations(run)
    run.acceleration.choose_threads(run)
    check_states_can_be_saved(run.plan)


def check_watched_modules(run: Run) -> None:
    """Refuse a hook that watches modules that the model does not have, or that are compiled."""
    for entry in run.plan:
        for watched in entry.watched:
            watched.find(run.model, run.wrapped)


def check_skips(run: Run) -> None:
    """Refuse to leave out batches that the run does not have, or all batches of a pass."""
    loop = run.train_loop.planned
    if not loop.skip.ranges:
        return
    length, places = loop.length, loop.places
    if not length or places is None:
        raise ConfigError(
            f"skip counts batches from the first one of the run, but the {type(loop.dataloader).__name__} has no "
            "length; leave the samples out of the data instead"
        )
    if beyond := loop.skip.without(loop.skip.before(places)):
        raise ConfigError(f"skip: there is no batch {beyond}, because the run ends with batch {places}")
    passes = {place // length for each in loop.skip.ranges for place in each}
    for epoch in sorted(passes):
        if not loop.length_of_pass(epoch):
            first, last = epoch * length + 1, (epoch + 1) * length
            raise ConfigError(
                f"skip leaves out all batches of epoch {epoch + 1} ({first}-{last}), and an epoch needs at least one"
            )
    run.terminal.say(f"skip leaves out {count(len(loop.skip), 'batch', 'batches')}: {loop.skip}")


def check_before_first_pass(run: Run) -> None:
    """Check what hooks may have changed before the first step, and that they can load their states."""
    check_parameters(run)
    check_states_can_be_loaded(run.plan)


def check_loaders(found: Mapping[str, TrainLoop | EvalLoop]) -> None:
    """Refuse a loader that is known to have no batch, or that has far too many workers."""
    for name, loop in found.items():
        workers = getattr(loop.dataloader, "num_workers", None)
        if isinstance(workers, int):
            check_workers(workers, f"the loader of '{name}': ")
        if is_empty(loop.dataloader):
            raise DataError(f"the loader of '{name}' is empty: it has no batch")

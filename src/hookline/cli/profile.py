"""`hookline profile`: train some steps in a temporary folder, and show how far each part of a run is from its limit."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hookline.cli.common import Allow, Words, load_config, show, to_the_end
from hookline.cli.errors import Traceback  # noqa: TC001  # typer reads the annotations

if TYPE_CHECKING:
    from hookline.hooks import CheckpointHook
    from hookline.report.speed import Shape, Speed
    from hookline.runner.runner import Runner

EXAMPLES = """\b
Examples:
  hookline profile                           the bundled digits run
  hookline profile digits.yaml --steps 1000  more steps, for parts that vary
  hookline profile digits.yaml train.dataloader.num_workers=2
                                             with one value overridden
"""
#: The share of the steps that come before the measured ones: first calls import, compile and start workers.
WARM_UP = 0.25


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("profile", epilog=EXAMPLES)(to_the_end()(profile))


def profile(
    words: Words = None,
    steps: Annotated[int, typer.Option("--steps", metavar="N", min=4, help="How many steps to train.")] = 200,
    allow: Allow = None,
    traceback: Traceback = False,
) -> None:
    """Show where the time of the run of CONFIG goes.

    It trains some steps with all of its hooks and writers, validates and saves, and leaves no files.
    """
    from hookline.cli.dry_run import saving_into
    from hookline.config import build_runner

    loaded = load_config(words)
    with tempfile.TemporaryDirectory(prefix="hookline-profile-") as folder:
        loaded = saving_into(loaded, folder)
        runner = build_runner(loaded, allow=allow or (), work_dir=folder, resume=False, keep=None, quiet=True)
        speed, measured = measure(runner, steps, Path(folder))
    name = loaded.file.stem if loaded.file is not None else "the config"
    show(f"{measured} steps of {name} on {runner.device}, after {runner.iter - measured} to warm up")
    show("\n".join(speed.lines()))


def measure(runner: Runner, steps: int, folder: Path) -> tuple[Speed, int]:
    """Train some steps, and return the speed of the parts, and how many steps were measured."""
    from hookline.report.speed import speed_of

    host, loop = runner._host, runner.train_loop
    host.shorten(steps)
    if loop.by_epoch and loop.length:
        loop.max_epochs = min(loop.planned.max_epochs or 1, max(steps // loop.length, 1))
        steps = loop.max_epochs * loop.length
    runner.trace(folder / "trace.json", steps)  # so that every step is measured
    ledger, first = host.plan.ledger, max(int(steps * WARM_UP), 1)

    @runner.on("before_train_iter", priority="HIGHEST")
    def begin(runner: Runner) -> None:
        if runner.iter == first:
            ledger.open(host.position)
            ledger.begin_steps()

    @runner.on("after_train", priority="HIGHEST")
    def save(runner: Runner) -> None:
        runner.request_save()

    runner.train()
    costs = runner.costs()
    return speed_of(costs, ledger.seconds - ledger.seconds_before_steps - costs.overhead, shape_of(runner)), costs.steps


def shape_of(runner: Runner) -> Shape:
    """Return the length of the whole run."""
    from hookline.data.sources import as_resumable
    from hookline.hooks import CheckpointHook
    from hookline.report.speed import Shape

    loop, saving = runner.train_loop, [entry.hook for entry in runner._host.plan if type(entry.hook) is CheckpointHook]
    lengths = [(each.length, each.planned.length) for each in runner.val_loops.values()]
    known = [(short, whole) for short, whole in lengths if short is not None and whole is not None]
    resumable = as_resumable(loop.dataloader)
    return Shape(
        steps=loop.planned.total_iters,
        validations=loop.planned.total_validations,
        saves=sum(saves_of(hook, runner) for hook in saving),
        batches=(sum(short for short, _ in known), sum(whole for _, whole in known)) if known == lengths else None,
        workers=0 if resumable is None else resumable.inner.num_workers,
    )


def saves_of(hook: CheckpointHook, runner: Runner) -> int:
    """Return how often a hook saves in the whole run, beside its last and its best checkpoints; 0 if unknown."""
    loop = runner.train_loop.planned
    by_epoch = loop.counts_epochs(hook.by_epoch, "CheckpointHook")
    whole = loop.max_epochs if by_epoch else loop.total_iters
    usual = 1 if by_epoch else loop.val_interval if runner.val_loops and not loop.by_epoch else 1000
    interval = usual if hook.interval is None else hook.interval
    return whole // interval if whole is not None and interval >= 1 else 0

"""`hookline train`: run the training that a config describes, and test the model at the end."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path  # typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hookline.cli import launch, numerics
from hookline.cli.common import CHECKPOINTS, Allow, Words, load_config, resume_hint, to_the_end
from hookline.cli.continuing import continuing_command
from hookline.cli.errors import Traceback, after_the_error
from hookline.common import launched
from hookline.errors import ConfigError, NumericsError
from hookline.launching.options import Options
from hookline.plan.trace import FIRST_STEPS
from hookline.run.keep import parse_keep, refuse_without_resume

if TYPE_CHECKING:
    from hookline.config.loading import LoadedConfig
    from hookline.runner.runner import Runner
    from hookline.sweeps.joining import JoinedTrial

EXAMPLES = """\b
Examples:
  hookline train                                   the bundled digits run
  hookline train digits.yaml train.max_epochs=20   a config, with one value overridden
  hookline train digits.yaml custom_hooks.0.priority=LOW
  hookline train digits.yaml --resume              resume from the newest checkpoint
  hookline train digits.yaml resume=runs/digits/epoch_3.pth
                                                   resume from this checkpoint
  hookline train digits.yaml train.max_epochs=30 --resume --keep schedule=config
                                                   train longer, and stretch the rest of the schedule
  hookline train digits.yaml --resume --dry-run    show what a resume would do
  hookline train digits.yaml --dry-run             try two batches of everything, a save and a reload
  hookline train digits.yaml --trace trace.json    write a timeline of hooks and steps
  hookline train digits.yaml --nproc 2 --max-restarts 3
                                                   two processes, which are restarted if one fails
  hookline train digits.yaml --nproc 8 --nnodes 2 --rdzv-endpoint node1:29400
                                                   eight processes on each of two machines
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("train", epilog=EXAMPLES)(to_the_end()(train))


def train(
    words: Words = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the newest checkpoint of work_dir.")] = False,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="[KEY=]SIDE",
            help="With --resume, who wins where the checkpoint and the config differ: config or checkpoint, for all "
            "keys or for one (lr=config); can be repeated.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Try two batches of each loop, a save and a reload. With --resume, first show what a resume would do. "
            "Leaves no files.",
        ),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="FILE", help="Write a Chrome trace of steps, points and hooks, for ui.perfetto.dev."
        ),
    ] = None,
    trace_steps: Annotated[
        int | None,
        typer.Option(
            "--trace-steps",
            metavar="N",
            min=0,
            help="With --trace, trace the first N steps (100 by default); after them, one of 31.",
        ),
    ] = None,
    allow: Allow = None,
    nproc: launch.Nproc = 1,
    nnodes: launch.Nnodes = "1",
    node_rank: launch.NodeRank = None,
    rdzv_backend: launch.RdzvBackend = "c10d",
    rdzv_endpoint: launch.RdzvEndpoint = "",
    rdzv_id: launch.RdzvId = "",
    max_restarts: launch.MaxRestarts = 0,
    grace: launch.Grace = 60.0,
    traceback: Traceback = False,
) -> None:
    """Train the model of CONFIG, and then test it.

    The test is skipped if CONFIG has no test set.
    """
    options = Options(nproc, nnodes, node_rank, rdzv_backend, rdzv_endpoint, rdzv_id, max_restarts, grace)
    if trace_steps is not None and trace is None:
        raise ConfigError("--trace-steps says how much a trace holds, so it needs --trace FILE")
    if dry_run:
        refuse_with_dry_run(options, trace)
    loaded = load_training(words or [], resume, keep)
    steps = FIRST_STEPS if trace_steps is None else trace_steps
    if options.asks_for_processes:
        more = ["--trace", str(trace), "--trace-steps", str(steps)] if trace is not None else []
        launch.train_in_processes(loaded, words or (), resume, keep or (), allow or (), options, more)
        return
    changes: dict[str, Any] = {"resume": True} if resume or launched.must_resume() else {}
    changes |= {"keep": keep} if keep else {}
    command = continuing_command(words or (), keep or (), allow or (), options)
    if dry_run:
        from hookline.cli.dry_run import preview, try_out

        if resume:
            preview(loaded, allow or (), command, changes)
        try_out(loaded, allow or ())
        return
    from hookline.config import build_runner
    from hookline.sweeps.joining import current_trial

    trial = current_trial()
    runner = build_runner(loaded, allow=allow or (), **changes, **trial.changes)
    runner._host.hints.continue_with(command)
    trial.join(runner)
    if trace is not None:
        runner.trace(trace, steps)
    announce(runner)
    began, before = time.monotonic(), runner.iter
    try:
        train_for_launcher(runner)
    except NumericsError:
        if runner.world_size == 1 and not trial:
            seconds = (time.monotonic() - began) / max(runner.iter - before, 1)
            after_the_error(partial(numerics.find_origin, runner.work_dir, seconds, tuple(allow or ())))
        raise
    finish(runner, trial, command)


def refuse_with_dry_run(options: Options, trace: Path | None) -> None:
    """Reject options that a dry run does not support."""
    if options.asks_for_processes:
        raise ConfigError("--dry-run tries the run in one process; leave out the options that start more")
    if trace is not None:
        raise ConfigError("--dry-run leaves no files, so it cannot write a trace; leave out --trace")


def load_training(words: list[str], resume: bool, keep: list[str] | None) -> LoadedConfig:
    """Load the config, and refuse choices about a resume that have no effect."""
    parse_keep(keep, "--keep")
    named = [word for word in words if resume and "=" not in word and word.endswith(CHECKPOINTS)]
    if named:
        raise ConfigError(f"--resume does not take a value; {resume_hint(named[0])}")
    loaded = load_config(words)
    if not (resume or loaded.data.get("resume") or launched.must_resume()):
        if keep:
            raise ConfigError("--keep chooses between a checkpoint and the config, so it needs --resume")
        refuse_without_resume(parse_keep(loaded.data.get("keep")))
    return loaded


def finish(runner: Runner, trial: JoinedTrial, command: str) -> None:
    """Test the model if training is finished, and show what the run did and how it can be continued."""
    unfinished = runner.stopped and runner.stopped.for_now
    if runner.test_loops and not (unfinished or trial.was_pruned(runner)):
        runner.test()
    if unfinished:
        runner.terminal.say("not tested, because training is not finished")
    runner.terminal.open_log(runner.work_dir / "run.log")
    runner.terminal.show(runner.summary())
    runner.terminal.close_log()
    if unfinished:
        runner.terminal.say(f"Continue with: {command}")
    if runner.exit_code:
        raise typer.Exit(runner.exit_code)


def train_for_launcher(runner: Runner) -> None:
    """Train, and tell a launcher that may restart this process whether a failure is one of training."""
    try:
        runner.train()
    except BaseException:
        if not runner.iter:
            launched.unmark_started()
        raise
    launched.mark_ended()


def announce(runner: Runner) -> None:
    """Show one line about the run that is about to start."""
    loop = runner.train_loop
    length = f"{loop.max_epochs} epochs" if loop.by_epoch else f"{loop.max_iters} iterations"
    if loop.by_epoch and loop.length is not None:
        length += f" of {loop.length} iterations"
    runner.terminal.say(
        f"{runner.experiment_name}: {length} on {runner.device}, {runner.precision}, seed {runner.seed}"
        + (f", {runner.world_size} processes ({runner.strategy.name})" if runner.world_size > 1 else "")
    )

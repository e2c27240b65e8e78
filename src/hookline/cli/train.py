"""`hookline train`: run the training that a config describes, and test the model at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from hookline.cli import launch
from hookline.cli.common import Allow, Words, load_config, to_the_end
from hookline.common import launched
from hookline.errors import ConfigError
from hookline.launching import Options

if TYPE_CHECKING:
    from hookline.engine.runner import Runner

EXAMPLES = """\b
Examples:
  hookline train                                   the bundled digits run
  hookline train digits.yaml train.max_epochs=20   a config, with one value overridden
  hookline train digits.yaml custom_hooks.0.priority=LOW
  hookline train digits.yaml --resume              resume from the newest checkpoint
  hookline train digits.yaml --dry-run             try two batches of everything, a save and a reload
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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Try two batches of each loop, a save and a reload. Leaves no files.")
    ] = False,
    allow: Allow = None,
    nproc: launch.Nproc = 1,
    nnodes: launch.Nnodes = "1",
    node_rank: launch.NodeRank = None,
    rdzv_backend: launch.RdzvBackend = "c10d",
    rdzv_endpoint: launch.RdzvEndpoint = "",
    rdzv_id: launch.RdzvId = "",
    max_restarts: launch.MaxRestarts = 0,
    grace: launch.Grace = 60.0,
) -> None:
    """Train the model of CONFIG, and then test it.

    The test is skipped if CONFIG has no test set.
    """
    options = Options(nproc, nnodes, node_rank, rdzv_backend, rdzv_endpoint, rdzv_id, max_restarts, grace)
    if dry_run and options.asks_for_processes:
        raise ConfigError("--dry-run tries the run in one process; leave out the options that start more")
    loaded = load_config(words)
    if options.asks_for_processes:
        launch.train_in_processes(loaded, words or (), resume, allow or (), options)
        return
    if dry_run:
        from hookline.cli.dry_run import try_out

        try_out(loaded, allow or ())
        return
    from hookline.config import build_runner

    resume = resume or launched.must_resume()
    runner = build_runner(loaded, allow=allow or (), **({"resume": True} if resume else {}))
    announce(runner)
    began = time.perf_counter()
    train_for_launcher(runner)
    seconds = time.perf_counter() - began
    unfinished = runner.stopped and runner.stopped.for_now
    tested = runner.test() if runner.test_loops and not unfinished else {}
    if unfinished:
        runner.terminal.say("not tested, because training is not finished; continue with --resume")
    from hookline.cli.summary import closing_table

    runner.terminal.open_log(runner.work_dir / "run.log")
    runner.terminal.show(closing_table(runner, seconds, tested))
    runner.terminal.close_log()
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

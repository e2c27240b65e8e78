"""`hookline replay`: run the steps of a run again, and say whether its failure is repeated."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hookline.cli.common import Allow, show
from hookline.cli.errors import Traceback  # noqa: TC001  # typer reads the annotations
from hookline.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookline.replay.preparation import Task
    from hookline.runner.hook import Hook
    from hookline.runner.runner import Runner

EXAMPLES = """\b
Examples:
  hookline replay runs/digits                  repeat the failure of a run, from its newest checkpoint
  hookline replay runs/digits --from-start     repeat it from the first step
  hookline replay runs/digits --pdb            open a debugger where it fails
  hookline replay runs/digits --steps 100..120 run these steps again, and compare the bits of their losses
  hookline replay runs/digits --triage         find out where NaN or Inf began: step, module, samples
  hookline replay runs/digits --json           the result as data
\b
Exit codes: 0 if the error came again at the same step with the same losses, or if the steps ran with the same losses,
1 if not, and others if the run cannot be replayed. With --triage: 0 if NaN or Inf was found, 1 if not.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("replay", epilog=EXAMPLES)(run)


def run(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of the run, which is only read.")],
    steps: Annotated[
        str | None,
        typer.Option("--steps", metavar="A..B", help="Run these steps again, instead of repeating the failure."),
    ] = None,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin with the first step of the run, and not with a checkpoint.")
    ] = False,
    pdb: Annotated[bool, typer.Option("--pdb", help="Open a debugger where the run fails.")] = False,
    triage: Annotated[
        bool,
        typer.Option("--triage", help="Find out where NaN or Inf began: the step, the pass, the module, the samples."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    allow: Allow = None,
    traceback: Traceback = False,
) -> None:
    """Repeat the failure of a run, or steps of it, in a scratch folder.

    The run is built again by its config or its script, and starts from the newest checkpoint before the failure. It
    writes no records, and observers are off. The losses are compared bit by bit.
    """
    from hookline.replay.outcome import compare
    from hookline.replay.preparation import parse_steps, prepare

    task = prepare(folder, None if steps is None else parse_steps(steps), from_start)
    if pdb and task.processes > 1:
        raise ConfigError(f"--pdb works in one process, but this run has {task.processes}; leave it out")
    if pdb and triage:
        raise ConfigError("--pdb stops where the run failed, and --triage looks for an earlier place; leave out one")
    for warning in task.warnings:
        show(f"warning: {warning}", error=True)
    if triage:
        find_origin(task, allow or (), as_json)
        return
    with tempfile.TemporaryDirectory(prefix="hookline-replay-") as scratch:
        repeat(task, Path(scratch), allow or (), debugs=pdb)
        outcome = compare(task, Path(scratch))
    show(json.dumps(outcome.as_data(), indent=2) if as_json else "\n".join(outcome.lines()))
    if not outcome.same:
        raise typer.Exit(1)


def find_origin(task: Task, allow: Sequence[str], as_json: bool) -> None:
    """Show where NaN or Inf began. What is known about a failure is also written into the folder of the run."""
    from functools import partial

    from hookline.replay import triage

    verdict = triage.triage(task, partial(repeat, allow=tuple(allow)))
    triage.write(verdict)
    show(json.dumps(verdict.as_data(), indent=2) if as_json else "\n".join(verdict.lines()))
    if verdict.finding is None:
        raise typer.Exit(1)


def repeat(
    task: Task,
    scratch: Path,
    allow: Sequence[str] = (),
    debugs: bool = False,
    watchers: Sequence[Callable[[Runner], Hook]] = (),
) -> None:
    """Repeat the steps, in as many processes as the run has had."""
    from hookline.common.files import real_path
    from hookline.replay import running
    from hookline.replay.rerun import Rerun

    failure = task.capsule
    rerun = Rerun(
        folder=task.folder,
        scratch=real_path(scratch),
        checkpoint=task.checkpoint,
        last=task.last,
        fails=failure is not None,
        observer="" if failure is None else failure.data["error"]["hook"],
        threads=task.threads,
        debugs=debugs,
        watchers=list(watchers),
    )
    if task.processes > 1 and not task.origin["starts_itself"]:
        from hookline.launching.functions import launch

        launch(running.run, task, rerun, tuple(allow), nproc=task.processes)
    else:
        running.run(task, rerun, allow)

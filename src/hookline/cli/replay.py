"""`hookline replay`: run the steps of a run again, and say whether its failure is repeated."""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hookline.cli.common import Allow, show
from hookline.cli.errors import Traceback  # noqa: TC001  # typer reads the annotations
from hookline.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline.replay.difference import MakeWatcher
    from hookline.replay.preparation import Task

EXAMPLES = """\b
Examples:
  hookline replay runs/digits                  repeat the failure of a run, from its newest checkpoint
  hookline replay runs/digits --from-start     repeat it from the first step
  hookline replay runs/digits --pdb            open a debugger where it fails
  hookline replay runs/digits --steps 100..120 run these steps again, and compare the bits of their losses
  hookline replay runs/digits --triage         find out where NaN or Inf began: step, module, samples
  hookline replay runs/digits --json           the result as data
  hookline replay runs/digits --bundle bug.hl  write what a colleague needs to repeat it
  hookline replay bug.hl                       repeat what is in a bundle
  hookline replay runs/digits --steps 100..120 --trail a.trail
                                               write the bits of everything in these steps, for hookline diff
\b
Exit codes: 0 if the error came again at the same step with the same losses, or if the steps ran with the same losses,
1 if not, and others if the run cannot be replayed. With --triage: 0 if NaN or Inf was found, 1 if not.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("replay", epilog=EXAMPLES)(run)


def run(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="The folder of the run, which is only read, or a bundle of one.")
    ],
    steps: Annotated[
        str | None,
        typer.Option("--steps", metavar="A..B", help="Run these steps again, instead of repeating the failure."),
    ] = None,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin with the first step of the run, and not with a checkpoint.")
    ] = False,
    pdb: Annotated[bool, typer.Option("--pdb", help="Open a debugger where the run fails.")] = False,
    trail: Annotated[
        Path | None,
        typer.Option("--trail", metavar="FILE", help="Write the bits of everything in these steps, for hookline diff."),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", metavar="FILE", help="Write the state and the batches for a colleague into one file."),
    ] = None,
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
    from hookline.replay import bundle as bundles
    from hookline.replay.difference import make_trail
    from hookline.replay.outcome import compare
    from hookline.replay.preparation import parse_steps, prepare
    from hookline.replay.trail import read_folder, write

    chosen = None if steps is None else parse_steps(steps)
    if triage and (pdb or bundle is not None or trail is not None or folder.is_file()):
        raise ConfigError("--triage looks for another place than --pdb, --bundle and --trail, in a run; leave out one")
    if bundle is not None and bundle.exists():
        raise ConfigError(f"--bundle {bundle} exists already; choose another name")
    for option, file in (("--bundle", bundle), ("--trail", trail)):
        if file is not None and (file.is_dir() or not file.parent.is_dir()):
            raise ConfigError(f"{option} {file} must be a file in a folder that exists")
    with tempfile.TemporaryDirectory(prefix="hookline-replay-") as temporary:
        scratch, watchers = Path(temporary, "scratch"), list["MakeWatcher"]()
        scratch.mkdir()
        if folder.is_file():
            task = bundles.prepare_bundle(folder, Path(temporary, "run"), chosen, from_start, allow or ())
            watchers.append(partial(bundles.make_feeds, folder.resolve()))
        else:
            task = prepare(folder, chosen, from_start)
        if pdb and task.processes > 1:
            raise ConfigError(f"--pdb works in one process, but this run has {task.processes}; leave it out")
        for warning in task.warnings:
            show(f"warning: {warning}", error=True)
        if triage:
            find_origin(task, allow or (), as_json)
            return
        watchers += [partial(make_trail, scratch)] * (trail is not None)
        watchers += [partial(bundles.make_packer, scratch, task.first)] * (bundle is not None)
        repeat(task, scratch, allow or (), debugs=pdb, watchers=watchers)
        outcome = compare(task, scratch)
        if trail is not None:
            write(trail, read_folder(scratch))
        lines = outcome.lines() + ([] if bundle is None else bundles.write(bundle, task, scratch))
    show(json.dumps(outcome.as_data(), indent=2) if as_json else "\n".join(lines))
    if not outcome.same:
        raise typer.Exit(1)


def find_origin(task: Task, allow: Sequence[str], as_json: bool) -> None:
    """Show where NaN or Inf began. What is known about a failure is also written into the folder of the run."""
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
    watchers: Sequence[MakeWatcher] = (),
    whole: bool = False,
) -> None:
    """Repeat the steps, in as many processes as the run has had. If `whole`, it is the whole run."""
    from hookline.common.files import real_path
    from hookline.replay import running
    from hookline.replay.rerun import Rerun

    failure = task.capsule
    rerun = Rerun(
        folder=task.folder if task.trains_in is None else task.trains_in,
        scratch=real_path(scratch),
        checkpoint=task.checkpoint,
        last=task.last,
        fails=failure is not None or whole,
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

"""`hookline reproduce`: run a run again in a new folder, and say whether the result is the same to the bit."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hookline.cli.common import Allow, show
from hookline.cli.diff import apart
from hookline.cli.errors import Traceback  # noqa: TC001  # typer reads the annotations

if TYPE_CHECKING:
    from hookline.replay.difference import MakeWatcher
    from hookline.replay.preparation import Task

EXAMPLES = """\b
Examples:
  hookline reproduce runs/digits               run it again in runs/digits-again, and compare
  hookline reproduce runs/digits --out /tmp/x  in another folder
  hookline reproduce runs/digits --json        the result as data
\b
Exit codes: 0 if the result is the same to the bit, 1 if not, and others if the run cannot be run again.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("reproduce", epilog=EXAMPLES)(run)


def run(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of the run, which is only read.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="The new folder; by default RUN-again.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    allow: Allow = None,
    traceback: Traceback = False,
) -> None:
    """Run a run again in a new folder, and say whether the result is the same to the bit.

    What is different from when the run was started is named: versions, the code and its revision, the config, the data.
    If the result differs, the steps where the runs part are replayed twice, to see whether the run is deterministic.
    """
    from hookline.replay.reproduction import choose_folder, find_task, make_results, reproduce

    task = find_task(folder)
    target = choose_folder(folder, out)
    for warning in task.warnings:
        show(f"warning: {warning}", error=True)

    def run_again(task: Task, folder: Path) -> None:
        apart(task, folder, allow or (), make_results, whole=True)

    def repeat(task: Task, folder: Path, watcher: MakeWatcher) -> None:
        apart(task, folder, allow or (), watcher)

    with tempfile.TemporaryDirectory(prefix="hookline-reproduce-") as scratch:
        result = reproduce(task, target, run_again, repeat, Path(scratch))
    show(json.dumps(result.as_data(), indent=2) if as_json else "\n".join(result.lines()))
    if not result.same:
        raise typer.Exit(1)

"""`hookline diff`: find the first thing that differs between two runs."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hookline.cli.common import Allow, show
from hookline.cli.errors import Traceback  # noqa: TC001  # typer reads the annotations
from hookline.cli.replay import repeat
from hookline.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline.replay.difference import MakeWatcher
    from hookline.replay.preparation import Task

EXAMPLES = """\b
Examples:
  hookline diff runs/a runs/b                  where two runs part, and what differs first
  hookline diff runs/a runs/b --steps 1..50    run these steps of both again, whatever their records show
  hookline diff a.trail b.trail                two files of hookline replay RUN --steps A..B --trail FILE
  hookline diff runs/a runs/b --json           the result as data
\b
Exit codes: 0 if they are equal to the bit, 1 if not, and others if they cannot be compared.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("diff", epilog=EXAMPLES)(run)


def run(
    one: Annotated[Path, typer.Argument(metavar="A", help="The folder of a run, which is only read, or a trail.")],
    other: Annotated[Path, typer.Argument(metavar="B", help="The other one.")],
    steps: Annotated[
        str | None, typer.Option("--steps", metavar="A..B", help="Run these steps of both again, in any case.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    allow: Allow = None,
    traceback: Traceback = False,
) -> None:
    """Find the first thing that differs between two runs.

    The losses and the checkpoints of both are compared bit by bit. If they differ, both runs are replayed from the last
    checkpoints that are equal, each in a process of its own, and the first difference is named: batch, random numbers,
    module output, loss, gradient, parameter, optimizer, or the state of a hook.
    """
    from hookline.replay.difference import compare_files, describe, diff
    from hookline.replay.preparation import parse_steps

    chosen = None if steps is None else parse_steps(steps)
    if one.is_file() and other.is_file():
        if chosen is not None:
            raise ConfigError("--steps chooses the steps of runs, but trails have their steps already; leave it out")
        found = compare_files(one, other)
        data = {"equal": found is None, "first": None if found is None else asdict(found)}
        lines = ["equal to the bit" if found is None else describe(found)]
        equal = found is None
    else:
        with tempfile.TemporaryDirectory(prefix="hookline-diff-") as scratch:

            def repeat_apart(task: Task, folder: Path, watcher: MakeWatcher) -> None:
                for warning in task.warnings:
                    show(f"warning: {warning}", error=True)
                apart(task, folder, allow or (), watcher)

            result = diff(one, other, repeat_apart, Path(scratch), chosen)
        data, lines, equal = result.as_data(), result.lines(), result.equal
    show(json.dumps(data, indent=2, default=str) if as_json else "\n".join(lines))
    if not equal:
        raise typer.Exit(1)


def apart(task: Task, folder: Path, allow: Sequence[str], *watchers: MakeWatcher, whole: bool = False) -> None:
    """Repeat the steps of a task in a process of its own, with watchers."""
    from hookline.replay.running import in_a_process

    in_a_process(partial(repeat, task, folder, tuple(allow), watchers=watchers, whole=whole))

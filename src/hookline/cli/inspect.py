"""`hookline inspect`: show the contents, origin and integrity of a checkpoint, and what a resume would do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hookline.cli.common import Allow, load_config, show
from hookline.errors import StorageError

if TYPE_CHECKING:
    from hookline.resume.report import Resumption

EXAMPLES = """\b
Examples:
  hookline inspect runs/digits/epoch_15.pth
  hookline inspect runs/digits              all checkpoints of a run, and the one that a resume uses
  hookline inspect runs/digits digits.yaml train.max_epochs=30
                                            also what differs if this config resumes the run
  hookline inspect runs/digits --json       the same as data
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("inspect", epilog=EXAMPLES)(run)


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A checkpoint, or the folder of a run.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG] [KEY=VALUE ...]", help="A config and overrides: show what differs if it resumes the run."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    allow: Allow = None,
) -> None:
    """Describe a checkpoint, or list the checkpoints of a run.

    With CONFIG, also show what a resume with this config would do. If FILE is damaged, the exit code is 5.
    """
    from hookline.checkpoint import folders, inspection, survey
    from hookline.common.files import storage_errors

    is_run = os.path.isdir(file) and not folders.is_sharded(file)
    with storage_errors(file, "read", inside=True):
        if as_json:
            data = survey.survey(file).as_data() if is_run else inspection.checkpoint_data(file)
        else:
            show(inspection.describe_folder(file) if is_run else inspection.describe_checkpoint(file))
    resumption = preview(file, is_run, words, allow or []) if words else None
    if as_json:
        if resumption is not None:
            data["resume"] = resumption.as_data()
        show(json.dumps(data, indent=2, default=str))
        if data.get("refusal"):
            raise typer.Exit(StorageError.exit_code)
    elif resumption is not None:
        show(resumption)


def preview(file: Path, is_run: bool, words: list[str], allow: list[str]) -> Resumption | None:
    """Return what a resume from a file, or from the newest one of a folder, would do with a config."""
    from hookline.config import build_runner

    changes: dict[str, Any] = {"resume": True, "work_dir": file} if is_run else {"resume": str(file)}
    runner = build_runner(load_config(words), allow=allow, quiet=True, **changes)
    runner._host.hints.continue_with("hookline train")  # so that the hints are options of the command line
    return runner.preview_resume(decided=False)

"""`hookline inspect`: show the contents, origin and integrity of a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from hookline.cli.common import show

EXAMPLES = """\b
Examples:
  hookline inspect runs/digits/epoch_15.pth
  hookline inspect runs/digits              all checkpoints of a run, and the one that a resume uses
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("inspect", epilog=EXAMPLES)(run)


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A checkpoint, or the folder of a run.")],
) -> None:
    """Describe a checkpoint, or list those of a run.

    If FILE is damaged, the exit code is 5.
    """
    from hookline.checkpoint import folders, inspection
    from hookline.common.files import storage_errors

    with storage_errors(file, "read", inside=True):
        is_run = os.path.isdir(file) and not folders.is_sharded(file)
        show(inspection.describe_folder(file) if is_run else inspection.describe_checkpoint(file))

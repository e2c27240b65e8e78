"""`hookline inspect`: what is in a checkpoint, from when, and whether it is intact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """\b
Examples:
  hookline inspect runs/digits/epoch_15.pth
  hookline inspect runs/digits              all of a run, which are intact, and which a resume takes
"""


def add_to(app: typer.Typer) -> None:
    """Make it a command."""
    app.command("inspect", epilog=EXAMPLES)(run)


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A checkpoint, or the folder of a run.")],
) -> None:
    """Show what a checkpoint holds, or which a run has. A damaged FILE ends with exit code 5."""
    from hookline.checkpoint import inspection

    print(inspection.folder(file) if file.is_dir() else inspection.checkpoint(file))

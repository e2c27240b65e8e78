"""`hookline export`: write the weights of a checkpoint as safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hookline.cli.common import show

EXAMPLES = """\b
Examples:
  hookline export runs/digits/epoch_15.pth
  hookline export runs/digits/epoch_15.pth --averaged --out digits-ema.safetensors
  hookline export runs/lora/epoch_3.pth --base base.pth          a checkpoint with only the trained parameters
  hookline export runs/digits/epoch_15.dcp --out epoch_15.pth    a sharded checkpoint as one file, to resume from
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("export", epilog=EXAMPLES)(run)


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A checkpoint.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The file to write; by default beside the checkpoint."),
    ] = None,
    averaged: Annotated[bool, typer.Option("--averaged", help="Export the averaged weights of an EMAHook.")] = False,
    base: Annotated[
        Path | None,
        typer.Option(
            "--base", metavar="FILE", help="Complete a checkpoint that has only the trained parameters with this file."
        ),
    ] = None,
    trained_only: Annotated[
        bool, typer.Option("--trained-only", help="Export such a checkpoint as it is, without the frozen rest.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write the model's weights as safetensors."""
    from hookline.checkpoint import inspection
    from hookline.checkpoint.export import export
    from hookline.common.files import storage_errors

    with storage_errors(file, "read", inside=True):
        written = export(file, out, averaged=averaged, force=force, base=base, trained_only=trained_only)
    show(f"{written.path}: {written.tensors} tensors, {inspection.format_size(written.size)}")
    if written.has_average and not averaged:
        show("exported the raw weights; to export the averaged weights instead, add --averaged")

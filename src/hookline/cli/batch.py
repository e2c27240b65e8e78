"""`hookline batch`: show which samples the batch of a step had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hookline.cli.common import Allow, show
from hookline.cli.errors import Traceback  # noqa: TC001  # typer reads the annotations

EXAMPLES = """\b
Examples:
  hookline batch runs/digits --step 812             the samples of the batch of this step
  hookline batch runs/digits --step 812 --rank 1    in the second process
  hookline batch runs/digits --step 812 --json      the same as data
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("batch", epilog=EXAMPLES)(run)


def run(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of the run, which is only read.")],
    step: Annotated[int, typer.Option("--step", metavar="N", min=1, help="The number of the iteration, from 1.")],
    rank: Annotated[int, typer.Option("--rank", metavar="R", min=0, help="The process, if there were several.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    allow: Allow = None,
    traceback: Traceback = False,
) -> None:
    """Show which samples the batch of a step had.

    The run is built again by its config or its script, and the order of its data is computed. No sample is read. If the
    data set has a method `describe(index)`, its text is shown beside each sample.
    """
    from hookline.replay.samples import find

    batch = find(folder, step, rank, allow or ())
    show(json.dumps(batch.as_data(), indent=2) if as_json else "\n".join(batch.lines()))

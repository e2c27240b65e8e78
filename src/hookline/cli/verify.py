"""`hookline verify`: show whether observers change a training."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from hookline.cli.common import Allow, Words, load_config, show
from hookline.cli.errors import Traceback  # noqa: TC001  # typer reads the annotations

EXAMPLES = """\b
Examples:
  hookline verify                              the bundled digits run
  hookline verify digits.yaml                  8 steps with observers and without
  hookline verify digits.yaml --steps 100      more steps
  hookline verify digits.yaml --json           the result as data
\b
Exit codes: 0 if no bit differs, 1 if one does, and others if the run cannot be trained.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("verify", epilog=EXAMPLES)(run)


def run(
    words: Words = None,
    steps: Annotated[int, typer.Option("--steps", metavar="N", min=2, help="Train this many steps.")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    allow: Allow = None,
    traceback: Traceback = False,
) -> None:
    """Show whether an observer changes a training.

    A few steps are trained in a temporary folder without observers, and then with them. Where bits differ, the observer
    is named, with the point, the step and what it changed. Attributes of your own hooks that a resume loses are named,
    too.
    """
    from hookline.replay.verification import verify

    found = verify(load_config(words or []), steps, allow or ())
    show(json.dumps(found.as_data(), indent=2) if as_json else "\n".join(found.lines()))
    if found.difference is not None:
        raise typer.Exit(1)

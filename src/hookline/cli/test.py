"""`hookline test`: test a checkpoint."""

from __future__ import annotations

from typing import Annotated

import typer

from hookline.cli.common import Allow, Words, load_config, show, to_the_end
from hookline.common.escape import escaped

EXAMPLES = """\b
Examples:
  hookline test digits.yaml --checkpoint runs/digits/epoch_15.pth
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("test", epilog=EXAMPLES)(to_the_end()(run))


def run(
    words: Words = None,
    checkpoint: Annotated[str, typer.Option("--checkpoint", metavar="FILE", help="The checkpoint to test.")] = "",
    allow: Allow = None,
) -> None:
    """Test the weights of a checkpoint on the test set of CONFIG."""
    from hookline.common.numbers import as_number
    from hookline.config import build_runner

    if not checkpoint:
        raise typer.BadParameter(
            "choose the checkpoint to test, such as --checkpoint runs/digits/epoch_15.pth", param_hint="--checkpoint"
        )
    runner = build_runner(load_config(words), allow=allow or (), resume=False, load_from=checkpoint)
    for name, value in runner.test().items():
        show(f"{escaped(name)}  {as_number(value)}")

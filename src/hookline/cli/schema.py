"""`hookline schema`: print the JSON Schema of configs, so that editors can complete and check them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hookline.cli.common import show
from hookline.errors import StorageError

EXAMPLES = """\b
Examples:
  hookline schema --out hookline.schema.json
  then add this as the first line of a config:
  # yaml-language-server: $schema=hookline.schema.json
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("schema", epilog=EXAMPLES)(schema)


def schema(
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="Write to this file instead of the screen.")] = "",
) -> None:
    """Print the JSON Schema of configs, for editors.

    It includes the parameters of every registered hook.
    """
    from hookline.config import json_schema

    text = json.dumps(json_schema(), indent=2)
    if out:
        try:
            Path(out).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise StorageError(f"{out} cannot be written: {error.strerror or error}") from error
        show(f"wrote {out}")
    else:
        show(text)

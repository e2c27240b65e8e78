"""`hookline init`: create a small project that is ready to train."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from hookline.cli.common import show
from hookline.errors import ConfigError, StorageError

EXAMPLES = """\b
Examples:
  hookline init my_project
  cd my_project && hookline train config.yaml
"""

FILES = ("config.yaml", "mynet.py", "my_hooks.py", "README.md")


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("init", epilog=EXAMPLES)(init)


def init(folder: Annotated[str, typer.Argument(metavar="DIR", help="The folder to create.")]) -> None:
    """Create a small project that is ready to train.

    It has a config, a model with its steps, and a hook.
    """
    from hookline.config import json_schema

    target = Path(folder)
    taken = [name for name in FILES if os.path.lexists(target / name)]
    if taken:
        raise ConfigError(f"{target} already contains {', '.join(taken)}; nothing was changed; choose another folder")
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            text = (files("hookline.cli") / "template" / f"{name}.txt").read_text(encoding="utf-8")
            (target / name).write_text(text, encoding="utf-8")
        (target / "hookline.schema.json").write_text(json.dumps(json_schema(), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{target} cannot be written: {error.strerror or error}") from error
    show(f"created {target}: {', '.join(FILES)}, hookline.schema.json")
    show(f"to train it: cd {target} && hookline train config.yaml")

"""What several commands share: which config is meant, and what may be imported."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hookline.config.load import LoadedConfig

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[CONFIG] [KEY=VALUE ...]", help="A YAML file, and changes to it; no file: the digits run."),
]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="MODULE", help="Let the config import this module too; may be given again."),
]


def load_config(words: list[str] | None) -> LoadedConfig:
    """Read the config that the words of a command mean: a file first, or the bundled one, then overrides."""
    from hookline.config import load

    given = list(words or [])
    named = bool(given) and (Path(given[0]).exists() or "=" not in given[0])
    path = Path(given.pop(0)) if named else Path(str(files("hookline.data") / "digits.yaml"))
    loaded = load(path, given)
    for notice in loaded.notices:
        print(f"note: {notice}")
    return loaded

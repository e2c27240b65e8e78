"""What several commands share: which config is meant, and what may be imported."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hookline.errors import HooklineError

if TYPE_CHECKING:
    from hookline.config.loading import LoadedConfig

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[CONFIG] [KEY=VALUE ...]", help="A YAML file, and changes to it; no file: the digits run."),
]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="MODULE", help="Let the config import this module too; may be given again."),
]


@contextmanager
def to_the_end() -> Iterator[None]:
    """What a command runs of the user's code may call sys.exit(); that must not look as if the command were done."""
    try:
        yield
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
        at = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{at.name} ({Path(at.filename).name}:{at.lineno})"
        raise HooklineError(f"sys.exit() was called in {place}, before the command was done") from error


def load_config(words: list[str] | None) -> LoadedConfig:
    """Read the config that the words of a command mean: a file first, or the bundled one, then overrides."""
    from hookline.config import load

    given = list(words or [])
    named = bool(given) and (Path(given[0]).exists() or "=" not in given[0])
    path = Path(given.pop(0)) if named else Path(str(files("hookline.data") / "digits.yaml"))
    # In an ASCII locale Python leaves other characters of the command line undecoded; YAML is UTF-8.
    loaded = load(path, [os.fsencode(override).decode("utf-8", "surrogateescape") for override in given])
    for notice in loaded.notices:
        print(f"note: {notice}")
    return loaded

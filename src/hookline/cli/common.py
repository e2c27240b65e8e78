"""Options and helpers that several commands share."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hookline.common import launched
from hookline.common.escape import escaped_lines
from hookline.errors import HooklineError

if TYPE_CHECKING:
    from hookline.config.loading import LoadedConfig

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CONFIG] [KEY=VALUE ...]", help="A YAML file and overrides; without a file, the bundled digits run."
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="MODULE", help="Allow the config to import this module as well; can be repeated."),
]


def show(text: object, *, end: str = "\n", error: bool = False) -> None:
    """Print a text, or an error, with control codes escaped. Every command prints with this function."""
    print(escaped_lines(text), end=end, file=sys.stderr if error else sys.stdout)


@contextmanager
def to_the_end() -> Iterator[None]:
    """Raise an error if user code ends the command early with `sys.exit(0)`, which would look like success."""
    try:
        yield
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
        at = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{at.name} ({Path(at.filename).name}:{at.lineno})"
        raise HooklineError(f"{place} called sys.exit() before the command was finished") from error


def load_config(words: list[str] | None) -> LoadedConfig:
    """Load the config from the words of a command: first a file, or else the bundled config, then overrides."""
    from hookline.config import load

    given = list(words or [])
    named = bool(given) and (os.path.exists(given[0]) or "=" not in given[0])
    path = Path(given.pop(0)) if named else Path(str(files("hookline.data") / "digits.yaml"))
    # In an ASCII locale, Python does not decode other characters of the command line. YAML is UTF-8.
    loaded = load(path, [os.fsencode(override).decode("utf-8", "surrogateescape") for override in given])
    for notice in () if launched.is_launched() else loaded.notices:  # the launcher has shown them
        show(f"note: {notice}")
    return loaded

"""Options and helpers that several commands share."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hookline.common import launched
from hookline.common.collector import paused
from hookline.common.escape import escaped, escaped_lines
from hookline.errors import HooklineError, nearest

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

#: The ends of the names of checkpoints.
CHECKPOINTS = (".pth", ".dcp")


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


def suggest_override(error: Any, words: Sequence[str]) -> None:
    """Add what to write to the error about an option that looks like an override: `--train.max_epochs=3`."""
    from hookline.config.schema import Config

    option: str = error.option_name
    if option == "--resume":
        value = next((word.partition("=")[2] for word in words if word.startswith("--resume=")), "") or "FILE"
        error.message = escaped(f"Option '--resume' does not take a value; {resume_hint(value)}")
        return
    takes_overrides = error.ctx is not None and any(one.name == "words" for one in error.ctx.command.params)
    key = option.lstrip("-")
    first, *_ = re.split(r"[.\[]", key, maxsplit=1)
    if not takes_overrides or (first == key and key not in Config.model_fields):
        return
    key = (nearest(first, Config.model_fields) or first) + key[len(first) :]
    place = next((index for index, word in enumerate(words) if word.partition("=")[0] == option), None)
    if place is None:
        return
    value, further = words[place].partition("=")[2], words[place + 1 :]
    if "=" not in words[place]:
        value = further[0] if further and not further[0].startswith("-") and "=" not in further[0] else "VALUE"
    error.message = escaped(f"No such option: {option}; to override a value of the config, write {key}={value}")
    error.possibilities = []


def resume_hint(checkpoint: str) -> str:
    """Return how to resume from a certain checkpoint."""
    return f"to resume from a certain checkpoint, write resume={checkpoint}"


def load_config(words: list[str] | None) -> LoadedConfig:
    """Load the config from the words of a command: first a file, or else the bundled config, then overrides."""
    with paused():
        from hookline.config import load

    loaded = load(*split_words(words))
    for notice in () if launched.is_launched() else loaded.notices:  # the launcher has shown them
        show(f"note: {notice}")
    return loaded


def split_words(words: list[str] | None) -> tuple[Path, list[str]]:
    """Split the words of a command into the file, or else the bundled config, and the overrides."""
    rest = list(words or [])
    named = bool(rest) and (os.path.exists(rest[0]) or "=" not in rest[0])
    path = Path(rest.pop(0)) if named else Path(str(files("hookline.data") / "digits.yaml"))
    # In an ASCII locale, Python does not decode other characters of the command line. YAML is UTF-8.
    return path, [os.fsencode(override).decode("utf-8", "surrogateescape") for override in rest]

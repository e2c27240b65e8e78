"""Positions in a config, and the error messages that mention them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hookline.common.escape import escaped
from hookline.common.numbers import as_repr
from hookline.errors import ConfigError

# The keys and list indices that lead to a value: ("custom_hooks", 0, "momentum").
Keys = tuple[str | int, ...]
# Floats that YAML writes in another way than Python.
NOT_FINITE = {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}
#: The problems that one error lists, and the characters of each of them.
MOST_PROBLEMS, LONGEST = 50, 2_000


@dataclass(frozen=True, order=True)
class Mark:
    """A position: line and column of a file, or only a source, such as an override."""

    source: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and the keys of the value in question."""

    keys: Keys
    message: str


def dotted(keys: Keys) -> str:
    """Return the path of a value as people write it: `custom_hooks[0].momentum`."""
    text = ""
    for key in keys:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += f".{key}" if text else key
    return text


def refusal(mark: Mark, keys: Keys, message: str) -> ConfigError:
    """Return the error about one value, on one line."""
    place = f"{mark} {dotted(keys)}" if keys else str(mark)
    return ConfigError(escaped(f"{place}: {message}"))


def refuse_all(title: str, problems: Iterable[tuple[Mark, Problem]]) -> None:
    """Raise one error that lists the problems by position. Do nothing if there are no problems.

    The problems in the file that the title names are listed first. Of very many problems, the rest is only counted.
    """
    lines: dict[str, None] = {}
    for mark, problem in sorted(problems, key=lambda item: _order(title, item[0])):
        place = f"{dotted(problem.keys)}: " if problem.keys else ""
        line = escaped(f"  {mark}  {place}{problem.message}")
        lines[line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."] = None
    if lines:
        count = "1 error" if len(lines) == 1 else f"{len(lines):,} errors"
        more = [f"  and {len(lines) - MOST_PROBLEMS:,} more"] * (len(lines) > MOST_PROBLEMS)
        raise ConfigError("\n".join([f"{escaped(title)}: {count}", *[*lines][:MOST_PROBLEMS], *more]))


def _order(title: str, mark: Mark) -> tuple[bool, str, int, int]:
    return (mark.source != title, mark.source, mark.line or 0, mark.column or 0)


def show(value: Any, longest: int = 60) -> str:
    """Return a value as text for a message: written as in YAML, and shortened if it is long."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = as_repr(value)
    if isinstance(value, float):
        text = NOT_FINITE.get(text, text)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."

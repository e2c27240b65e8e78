"""What can go wrong, as a tree, and the exit code of each branch.

    HooklineError            1
    ├── ConfigError          2   a config, an override, a name that nothing is registered under
    ├── HookError            2   a hook that cannot be right: method, argument, priority, order
    ├── DataError            3   an empty loader, a worker that died, a batch that cannot be read
    ├── NumericsError        4   NaN or Inf where training cannot go on
    ├── StorageError         5   a full disk, a folder that cannot be written, a broken checkpoint
    └── DistributedError     6   a rank that failed or does not answer

An exception out of a user's code (a hook, a step, a dataset) keeps its own type. What hookline knows about the place
is added to it as a note (`blame`), and with it, where one fits, the exit code.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HooklineError(Exception):
    """The root of all errors that hookline raises by itself."""

    exit_code = 1


class ConfigError(HooklineError):
    """The config, an override or a name in it is refused."""

    exit_code = 2


class HookError(HooklineError):
    """A hook, its priority or the order of hooks is refused."""

    exit_code = 2


class DataError(HooklineError):
    """The data cannot be used."""

    exit_code = 3


class NumericsError(HooklineError):
    """A number that training cannot go on with."""

    exit_code = 4


class StorageError(HooklineError):
    """Something cannot be written, or what is stored cannot be trusted."""

    exit_code = 5


class DistributedError(HooklineError):
    """A process of the group failed, or the group cannot be made."""

    exit_code = 6


def blame(error: BaseException, note: str, exit_code: int | None = None) -> None:
    """Add what is known about the place of a failure; type and traceback stay as they are."""
    error.add_note(note)
    if exit_code is not None and not hasattr(error, "exit_code"):
        error.exit_code = exit_code  # type: ignore[attr-defined]  # any exception takes attributes


def exit_code_of(error: BaseException) -> int:
    """The exit code that a command ends with when this error reaches it."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    code = getattr(error, "exit_code", 1)
    return code if isinstance(code, int) else 1


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that a misspelt one most likely means, whatever its case."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest one, or else what there is to choose from."""
    names = list(known)
    best = nearest(name, names)
    if best is not None:
        return f"did you mean '{best}'?"
    return f"available: {', '.join(names)}" if names else "none is available"

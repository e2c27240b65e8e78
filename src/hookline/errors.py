"""The tree of exceptions that hookline raises, with the exit code of each branch.

    HooklineError            1
    ├── ConfigError          2   a bad config or override, or an unknown name in it
    ├── HookError            2   a bad hook: its method, argument, priority or order
    ├── DataError            3   an empty loader, a dead worker, an unreadable batch
    ├── NumericsError        4   NaN or Inf that training cannot continue with
    ├── StorageError         5   out of disk space, a folder that is not writable, a broken checkpoint
    └── DistributedError     6   a rank that failed or does not respond
    any error                7   if the same step has failed three times: do not start the run again

An exception raised by user code (a hook, a step, a dataset) keeps its type. `blame` adds a note that says where it
happened and, if one applies, an exit code.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from contextlib import suppress

from hookline.common.escape import escaped, escaped_message

#: The exit code of a run whose same step has failed three times.
DO_NOT_REQUEUE = 7


class HooklineError(Exception):
    """Base class of all errors that hookline itself raises.

    Control codes in the message are escaped, because names and values in it may come from anywhere. The further lines
    of a message are indented; other line breaks are escaped, too.
    """

    exit_code = 1

    def __init__(self, *args: object) -> None:
        super().__init__(*(escaped_message(each) if isinstance(each, str) else each for each in args))


class ConfigError(HooklineError):
    """The config, an override, or a name in it is invalid."""

    exit_code = 2


class HookError(HooklineError):
    """A hook, its priority, or the order of the hooks is invalid."""

    exit_code = 2


class DataError(HooklineError):
    """The data cannot be used."""

    exit_code = 3


class NumericsError(HooklineError):
    """A NaN or Inf that training cannot continue with."""

    exit_code = 4
    #: True if the message says where it began, so that the place where it was noticed would only mislead.
    is_placed = False
    #: The iteration whose loss was bad, if it is known. It may be noticed some iterations later.
    step: int | None = None


class StorageError(HooklineError):
    """Something cannot be written, or stored data is broken."""

    exit_code = 5


class DistributedError(HooklineError):
    """A process of the group failed, or the group cannot be created."""

    exit_code = 6
    #: True if all processes already know of this error.
    was_reported = False
    #: True if this is the error of another process.
    relayed = False


def blame(error: BaseException, note: str, exit_code: int | None = None) -> None:
    """Add a note that says where the error happened. Its type and traceback stay unchanged.

    An `exit_code` is set only if the error has none yet.
    """
    BaseException.add_note(error, escaped_message(note))  # a class of the user may have an add_note that fails
    if exit_code is not None and not hasattr(error, "exit_code"):
        set_exit_code(error, exit_code)


def set_exit_code(error: BaseException, exit_code: int) -> None:
    """Set the exit code of a command that ends with this error. A class may refuse new attributes; then it stays 1."""
    with suppress(Exception):
        error.exit_code = exit_code  # type: ignore[attr-defined]  # almost any exception accepts new attributes


def described(error: BaseException) -> str:
    """Return the type and the message of any error. The message of a class of the user may not be available.

    >>> described(ValueError("too large"))
    'ValueError: too large'
    """
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as another:
        return f"{type(error).__name__}, whose message cannot be shown: its __str__ raised {type(another).__name__}"


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of a command that ends with this error."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    code = getattr(error, "exit_code", 1)
    return code if isinstance(code, int) else 1


#: Longer texts are not compared with names.
LONGEST_NAME = 200


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name that is closest to a misspelled one, ignoring case, or None if none is close.

    A text that is far longer than any name is close to none: comparing two such texts would take minutes.
    """
    if len(name) > LONGEST_NAME:
        return None
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


#: A message lists at most this many names.
MOST_NAMES = 50


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the closest known name, or else all known names."""
    names = list(known)
    best = nearest(name, names)
    if best is not None:
        return f"did you mean '{escaped(best)}'?"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"available: {', '.join(map(escaped, names[:MOST_NAMES]))}{more}" if names else "available: none"

"""Parameter checks shared by many parts. The error names the parameter, what was found and what was expected."""

from __future__ import annotations

import inspect
import math
import os
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from hookline.common.numbers import as_repr
from hookline.errors import ConfigError, did_you_mean, nearest

#: How similar a name has to be to the name of an attribute to be a misspelling of it.
SIMILAR = 0.85


def check_int(label: str, value: Any, least: int | None = None) -> None:
    """Refuse a value that is not an int, or not of at least `least`, or that does not fit in 64 bits.

    >>> check_int("LoggerHook: interval", 0, least=1)
    Traceback (most recent call last):
    hookline.errors.ConfigError: LoggerHook: interval must be an int of at least 1, not 0
    """
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        limit = f" of at least {least}" if least is not None else ""
        raise ConfigError(f"{label} must be an int{limit}, not {as_repr(value)}")
    if value.bit_length() > 63:
        raise ConfigError(f"{label} must fit in 64 bits, but has {value.bit_length()}")


def check_workers(number: int, where: str = "") -> None:
    """Refuse far more loader workers than this machine can run: each of them is a process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = max(64, 8 * cores)
    if number > most:
        machine = f"this process can use {cores} cores" if cores > 1 else "this process can use one core"
        raise ConfigError(
            f"{where}num_workers must be at most {most}, not {number}: each worker is a process, and {machine}"
        )


def is_count(value: Any, least: int = 0) -> bool:
    """Return whether a value, which may come from a file, can be a counter: a larger one could not be recorded."""
    return type(value) is int and least <= value < 1 << 63


def is_finite(value: Any) -> bool:
    """Return whether a value is a number, but not NaN, not infinite, and not too large for a float."""
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def check_number(label: str, value: Any, *, least: float | None = None, above: float | None = None) -> None:
    """Refuse a value that is not a finite number of at least `least`, or above `above`."""
    if not is_finite(value) or (least is not None and value < least) or (above is not None and value <= above):
        limit = f" of at least {least:g}" if least is not None else f" above {above:g}" if above is not None else ""
        raise ConfigError(f"{label} must be a number{limit}, not {as_repr(value)}")


def check_choice(label: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse a value that is not one of the choices, and suggest the closest one."""
    known = list(choices)
    if value not in known:
        hint = did_you_mean(value if isinstance(value, str) else as_repr(value), known)
        raise ConfigError(f"{label} cannot be {as_repr(value)}; {hint}")


def check_name(label: str, value: Any) -> None:
    r"""Refuse a name or a path with a line break or another control code.

    >>> check_name("work_dir", "runs/a\nb")
    Traceback (most recent call last):
    hookline.errors.ConfigError: work_dir must be in one line and without control codes, not 'runs/a\nb'
    """
    if any(unicodedata.category(character) == "Cc" for character in str(value)):
        raise ConfigError(f"{label} must be in one line and without control codes, not {str(value)!r}")
    try:
        str(value).encode("utf-8", "surrogateescape")  # as Python encodes names of files, but in any locale
    except UnicodeEncodeError:
        raise ConfigError(f"{label} must be text that can be the name of a file, not {str(value)!r}") from None


class Guarded:
    """An object whose `__init__` ends with `self._creator = <its class>`; a subclass may have any attributes."""

    #: Names that other systems, and people, use for attributes, with the attributes.
    _other_names: ClassVar[Mapping[str, str]] = {}
    _creator: type | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. A name that has no effect, but looks as if it had one, is refused."""
        if not hasattr(self, name) and (advice := self._advise(name)):
            raise ConfigError(f"a {type(self).__name__} has no '{name}', so setting it has no effect; {advice}")
        super().__setattr__(name, value)

    def _advise(self, name: str) -> str:
        if name in self._other_names:
            return f"set {self._other_names[name]}"
        if self._creator is not type(self):
            return ""
        if name in inspect.signature(type(self)).parameters:
            return f"create a new {type(self).__name__} with it"
        similar = nearest(name, [each for each in vars(self) if not each.startswith("_")], SIMILAR)
        return f"set {similar}" if similar else ""

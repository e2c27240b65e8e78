"""Checks of parameters that many parts share. A refusal says which one, what was found and what was expected."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import Any

from hookline.errors import ConfigError, did_you_mean

log = logging.getLogger("hookline")


def check_int(label: str, value: Any, least: int) -> None:
    """Refuse what is not a whole number of at least so much.

    >>> check_int("LoggerHook: interval", 0, least=1)
    Traceback (most recent call last):
    hookline.errors.ConfigError: LoggerHook: interval must be an int of at least 1, not 0
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{label} must be an int of at least {least}, not {value!r}")


def check_number(label: str, value: Any, *, least: float | None = None, above: float | None = None) -> None:
    """Refuse what is not a finite number of at least, or above, so much."""
    fine = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not fine or (least is not None and value < least) or (above is not None and value <= above):
        limit = f" of at least {least:g}" if least is not None else f" above {above:g}" if above is not None else ""
        raise ConfigError(f"{label} must be a number{limit}, not {value!r}")


def check_choice(label: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse what is none of the choices, with the nearest of them."""
    known = list(choices)
    if value not in known:
        raise ConfigError(f"{label} cannot be {value!r}; {did_you_mean(str(value), known)}")


def warn_of_the_end(label: str, begin: int, end: int | None) -> None:
    """Say that something never begins. No more than a warning: a run that is shortened to try it out is no mistake."""
    if end is not None and begin > end:
        log.warning("%s=%s never comes: the greatest that does is %s", label, begin, end)

"""Numbers and durations as readable text."""

from __future__ import annotations

import math
from typing import Any


def as_number(value: Any, digits: int = 4) -> str:
    """Return a number as readable text: `0.4103`, `3.00e-05`, `12`."""
    if not isinstance(value, float):
        return str(value)
    if value == 0 or 10.0 ** -(digits - (digits > 1)) <= abs(value) < 1e5:
        return f"{value:.{digits}f}"
    return f"{value:.{max(digits // 2, 1)}e}"


def as_repr(value: Any) -> str:
    """Return a value as Python writes it. Python refuses to write an int of thousands of digits.

    >>> as_repr("a"), as_repr(10**5000)
    ("'a'", 'an int of 16610 bits')
    """
    try:
        return repr(value)
    except ValueError:
        return f"an int of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"


def is_finite(value: float) -> bool:
    """Return whether a number is finite, and a float can hold it. JSON from outside may have any number of digits.

    >>> is_finite(3), is_finite(float("nan")), is_finite(10**400)
    (True, False, False)
    """
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def as_time(seconds: float) -> str:
    """Return a duration as readable text: `0:04:31`."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def count(number: int | None, noun: str, plural: str = "") -> str:
    """Return a number with its noun.

    >>> count(1, "epoch"), count(3, "batch", "batches")
    ('1 epoch', '3 batches')
    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"

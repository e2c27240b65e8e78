"""Numbers and durations as readable text."""

from __future__ import annotations

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


def as_time(seconds: float) -> str:
    """Return a duration as readable text: `0:04:31`."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"

"""Durations as people write them: `11h50m`, `90s`, `1d2h`."""

from __future__ import annotations

import re
import time
from typing import Any

from hookline.common.checks import is_finite
from hookline.common.numbers import as_repr
from hookline.errors import ConfigError


def clock() -> float:
    """Return the time of a clock that never goes backward, in seconds."""
    return time.perf_counter()


UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
# The format of batch systems: hours, minutes and seconds, optionally with days before them.
_CLOCK = re.compile(r"(?:([0-9]+)-)?([0-9]{1,3}):([0-5][0-9]):([0-5][0-9])")
_PARTS = re.compile(r"\s*".join(rf"(?:([0-9]+(?:\.[0-9]+)?){unit})?" for unit in UNITS))


def seconds_of(label: str, value: Any) -> float:
    """Return a duration in seconds.

    The value is a number of seconds, or a text with days, hours, minutes and seconds in this order.

    >>> [seconds_of("limit", value) for value in ("11h50m", "1d 2h", "1.5h", "90s", 90, "1-02:00:05", "00:10:00")]
    [42600.0, 93600.0, 5400.0, 90.0, 90.0, 93605.0, 600.0]
    >>> seconds_of("TimeLimitHook: limit", "11:50")
    Traceback (most recent call last):
    hookline.errors.ConfigError: TimeLimitHook: limit must be a duration such as '11h50m', '1d2h', '45m' or '90s', or \
a number of seconds, not '11:50'
    """
    if isinstance(value, str):
        match = _PARTS.fullmatch(value.strip()) or _CLOCK.fullmatch(value.strip())
        if match and any(match.groups()):
            return sum(float(count or 0) * unit for count, unit in zip(match.groups(), UNITS.values(), strict=True))
    elif is_finite(value) and value >= 0:
        return float(value)
    raise ConfigError(
        f"{label} must be a duration such as '11h50m', '1d2h', '45m' or '90s', or a number of seconds, not "
        + as_repr(value)
    )


def as_duration(seconds: float) -> str:
    """Return a number of seconds as such a text. Below a minute, it includes fractions of a second.

    >>> as_duration(42600), as_duration(93784.9), as_duration(0.25), as_duration(0)
    ('11h50m', '1d2h3m4s', '0.25s', '0s')
    """
    if seconds < 60:
        return f"{seconds:.3g}s"
    left, parts = int(seconds), []
    for unit, size in UNITS.items():
        count, left = divmod(left, size)
        parts += [f"{count}{unit}"] * bool(count)
    return "".join(parts)

"""Priorities of hooks, with the error types that MMEngine raises."""

from __future__ import annotations

from hookline.errors import HookError, did_you_mean
from hookline.plan.hook import Priority

__all__ = ["Priority", "get_priority"]


class PriorityValueError(HookError, ValueError):
    """The number is not a valid priority."""


class PriorityTypeError(HookError, TypeError):
    """The priority is neither a number nor a name."""


class PriorityKeyError(HookError, KeyError):
    """The name is not a priority."""

    def __str__(self) -> str:
        return str(self.args[0])


def get_priority(priority: int | str | Priority) -> int:
    """Return the number of a priority: a number from 0 to 100, a name in upper or lower case, or a member of Priority.

    >>> get_priority("very_low"), get_priority(55), get_priority(Priority.HIGH)
    (90, 55, 30)
    """
    if isinstance(priority, int) and not isinstance(priority, bool):
        if not 0 <= priority <= 100:
            raise PriorityValueError(f"a priority must be between 0 and 100, not {priority}")
        return int(priority)
    if not isinstance(priority, str):
        raise PriorityTypeError(f"a priority must be a number from 0 to 100 or a name such as 'LOW', not {priority!r}")
    if priority.upper() not in Priority.__members__:
        raise PriorityKeyError(f"unknown priority '{priority}'; {did_you_mean(priority, Priority.__members__)}")
    return Priority.parse(priority)

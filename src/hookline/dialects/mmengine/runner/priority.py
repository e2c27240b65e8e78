"""Priorities of hooks, and errors of the types that the original raises."""

from __future__ import annotations

from hookline.errors import HookError, did_you_mean
from hookline.plan.hook import Priority

__all__ = ["Priority", "get_priority"]


class PriorityValueError(HookError, ValueError):
    """A number that is no priority."""


class PriorityTypeError(HookError, TypeError):
    """Something that is neither a number nor a name."""


class PriorityKeyError(HookError, KeyError):
    """A name that is no priority."""

    def __str__(self) -> str:
        return str(self.args[0])


def get_priority(priority: int | str | Priority) -> int:
    """The number of a priority, given as a number from 0 to 100, a name in any case, or a member of Priority.

    >>> get_priority("very_low"), get_priority(55), get_priority(Priority.HIGH)
    (90, 55, 30)
    """
    if isinstance(priority, int) and not isinstance(priority, bool):
        if not 0 <= priority <= 100:
            raise PriorityValueError(f"a priority lies between 0 and 100, and {priority} does not")
        return int(priority)
    if not isinstance(priority, str):
        raise PriorityTypeError(f"a priority is a number from 0 to 100 or a name like 'LOW', not {priority!r}")
    if priority.upper() not in Priority.__members__:
        raise PriorityKeyError(f"'{priority}' is no priority; {did_you_mean(priority, Priority.__members__)}")
    return Priority.parse(priority)

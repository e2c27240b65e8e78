"""Priorities of hooks, with the error types that MMEngine raises."""

from __future__ import annotations

from hookline.dialects.errors import HookKeyError, HookTypeError, HookValueError
from hookline.errors import HookError
from hookline.plan.hook import Priority

__all__ = ["Priority", "get_priority"]


def get_priority(priority: int | str | Priority) -> int:
    """Return the number of a priority: a number from 0 to 100, a name in upper or lower case, or a member of Priority.

    >>> get_priority("very_low"), get_priority(55), get_priority(Priority.HIGH)
    (90, 55, 30)
    """
    try:
        return Priority.parse(priority)
    except HookError as error:
        if isinstance(priority, str):
            raise HookKeyError(str(error)) from None
        is_number = isinstance(priority, int) and not isinstance(priority, bool)
        raise (HookValueError if is_number else HookTypeError)(str(error)) from None

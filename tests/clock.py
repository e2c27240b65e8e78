"""A fake clock that a test sets."""

from __future__ import annotations


class Clock:
    """A clock that returns `now`, which changes only when the test sets it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

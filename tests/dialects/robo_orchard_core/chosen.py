"""A module that only a caller who allows it has imported."""

from __future__ import annotations

from typing import Any


class Loud:
    """A class."""

    class Inner:
        """One inside of it."""


def evaluate(model: Any) -> None:
    """A function."""


number = 3

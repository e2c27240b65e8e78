"""A module that is imported only if a caller allows it."""

from __future__ import annotations

from typing import Any


class Loud:
    """A class."""

    class Inner:
        """A nested class."""


def evaluate(model: Any) -> None:
    """A function."""


number = 3

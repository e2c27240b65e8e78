"""Attributes that are forwarded to another object, in one line each."""

from __future__ import annotations

from operator import attrgetter
from typing import Any


def forwarded(path: str, doc: str, *, settable: bool = False) -> Any:
    """Return a property that reads an attribute of a part of the object and, if it is settable, sets it there.

    >>> class Loop:
    ...     length: int = forwarded("loader.length", "Return the number of batches.", settable=True)
    ...     class loader:
    ...         length = 3
    >>> loop = Loop()
    >>> loop.length += 1
    >>> loop.length, Loop.loader.length, Loop.length.__doc__
    (4, 4, 'Return the number of batches.')
    """
    part, _, name = path.rpartition(".")

    def write(owner: Any, value: Any) -> None:
        setattr(attrgetter(part)(owner) if part else owner, name, value)

    return property(attrgetter(path), write if settable else None, doc=doc)

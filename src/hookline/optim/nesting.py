"""Schedulers inside schedulers: SequentialLR, ChainedScheduler, and others that are built like these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hookline.common.torch_private import INNER_SCHEDULERS


def walk(scheduler: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a scheduler and all schedulers inside it, each with the prefix of its parameters: `schedulers.1.`.

    The saved state of a scheduler has the same structure, and can be walked in the same way.
    """
    yield prefix, scheduler
    for index, inner in enumerate(inside(scheduler)):
        yield from walk(inner, f"{prefix}schedulers.{index}.")


def inside(scheduler: Any) -> list[Any]:
    """Return the schedulers that a scheduler consists of, or the states in a saved state."""
    saved = isinstance(scheduler, Mapping)
    found = scheduler.get(INNER_SCHEDULERS) if saved else getattr(scheduler, INNER_SCHEDULERS, None)
    return list(found) if isinstance(found, (list, tuple)) else []

"""Reading checkpoints that other programs wrote: tensors and plain data, and nothing else in them is run.

A file of MMEngine has objects of its classes besides the weights. Each class or function that a file names, and that is
not known to be harmless, becomes a stand-in that takes anything and does nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from hookline.checkpoint import store
from hookline.errors import StorageError


class StandIn:
    """In the place of an object whose class is not made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Anything may be given; it is not kept."""

    def __setstate__(self, state: Any) -> None:
        """Likewise."""


class DictStandIn:
    """In the place of a dict of another kind, such as a `defaultdict`: what is in it is kept."""

    def __new__(cls, *args: Any, **kwargs: Any) -> OrderedDict[Any, Any]:  # type: ignore[misc]  # no object of its own
        """A plain dict; anything else that is given is not kept."""
        return OrderedDict(args[0] if args and isinstance(args[0], dict) else ())


def read(path: Path) -> dict[str, Any]:
    """What is in a checkpoint; one of hookline as it reads them, others with stand-ins."""
    try:
        return store.read(path, sealed=False)
    except StorageError:
        unknown = _unknown_names(path)
        if not unknown:
            raise
    try:
        with safe_globals([(_stand_in(name), name) for name in unknown]):
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a broken or hostile file makes the reader stumble over
        raise StorageError(
            f"{path} cannot be read: it holds more than weights and plain data ({', '.join(sorted(unknown)[:5])}), and "
            "nothing in a file is ever run"
        ) from error
    if not isinstance(found, dict):
        raise StorageError(f"{path} holds a {type(found).__name__}, not a checkpoint")
    return found


def _stand_in(name: str) -> type[Any]:
    return DictStandIn if name.lower().endswith("dict") else StandIn


def _unknown_names(path: Path) -> list[str]:
    """The classes and functions that a file names, without the harmless ones."""
    try:
        return list(get_unsafe_globals_in_checkpoint(path))
    except Exception:  # no file of torch, or one of an old kind
        return []

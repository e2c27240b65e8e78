"""Read checkpoints that other programs wrote: only tensors and plain data, without running any code in them.

A file from MMEngine holds objects of its classes besides the weights. Each class or function in a file that is not
known to be harmless is replaced by a stand-in that accepts any arguments and does nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from hookline.checkpoint import loading, store
from hookline.checkpoint.pickle_walk import CODE
from hookline.checkpoint.zip_entries import UnreadableError
from hookline.errors import StorageError


class StandIn:
    """Replaces an object of an unknown class."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Accept and discard any arguments."""

    def __setstate__(self, state: Any) -> None:
        """Discard the state."""


class DictStandIn:
    """Replaces a dict of an unknown class, such as a `defaultdict`, and keeps its entries."""

    def __new__(cls, *args: Any, **kwargs: Any) -> OrderedDict[Any, Any]:  # type: ignore[misc]  # returns another type
        """Return the entries as an ordered dict, and discard any other arguments."""
        return OrderedDict(args[0] if args and isinstance(args[0], dict) else ())


def read(path: Path) -> dict[str, Any]:
    """Read a checkpoint file. In files that hookline cannot read directly, unknown classes become stand-ins."""
    try:
        return store.read(path, sealed=False)
    except StorageError as error:
        unknown = _unknown_names(path) if CODE in str(error) else []
        if not unknown:
            raise
    try:
        with safe_globals([(_stand_in(name), name) for name in unknown]):
            found = loading.load(path)
    except UnreadableError as error:
        if str(error) != CODE:
            raise StorageError(f"{path} cannot be read as a checkpoint: {error}") from error
        raise StorageError(
            f"{path} cannot be read: it holds more than weights and plain data ({', '.join(sorted(unknown)[:5])}), and "
            "code in a file is never run"
        ) from error
    if not isinstance(found, dict):
        raise StorageError(f"{path} holds a {type(found).__name__}, not a checkpoint")
    return found


def _stand_in(name: str) -> type[Any]:
    return DictStandIn if name.lower().endswith("dict") else StandIn


def _unknown_names(path: Path) -> list[str]:
    """Return the classes and functions that a file refers to, except the harmless ones."""
    try:
        return list(get_unsafe_globals_in_checkpoint(path))
    except Exception:  # not a torch file, or in torch's old format
        return []

"""Convert configs of other systems, which may hold objects, to the plain data that a run records."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from typing import Any

import numpy as np


def plain_data(value: Any) -> Any:
    """Return a config as plain data, as it is recorded: any other object is replaced by its name or its repr.

    A memory address is never included, because it would make two runs of the same config differ.

    >>> plain_data({"hooks": [{"type": dict, "priority": 50}], "when": slice(2), "what": object()})
    {'hooks': [{'type': 'builtins:dict', 'priority': 50}], 'when': 'slice(None, 2, None)', 'what': 'builtins:object'}
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain_data(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_data(inner) for inner in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain_data(inner) for inner in value), key=repr)  # their order differs between processes
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (enum.Enum, np.generic)):
        return plain_data(value.value if isinstance(value, enum.Enum) else value.item())
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    named = value if hasattr(value, "__qualname__") else type(value)
    if named is not value and " at 0x" not in (shown := repr(value)):
        return shown
    return f"{named.__module__}:{named.__qualname__}"

"""What a checkpoint can hold: tensors and plain data, which `weights_only=True` reads back."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from torch import Tensor

from hookline.errors import HookError


def refuse_odd(value: Any, where: str) -> None:
    """Refuse what cannot be read back with `weights_only=True`, by name, before anything is written."""
    if isinstance(value, (Tensor, str, bytes, int, float, bool, type(None))) and type(value).__module__ != "numpy":
        return
    if type(value) in (dict, OrderedDict):
        for key, inner in value.items():
            refuse_odd(inner, f"{where}[{key!r}]")
    elif type(value) in (list, tuple):
        for index, inner in enumerate(value):
            refuse_odd(inner, f"{where}[{index}]")
    else:
        raise HookError(
            f"{where} is a {type(value).__module__}.{type(value).__qualname__}, which a checkpoint cannot hold; "
            "give tensors and plain data (numbers, strings, lists, dicts)"
        )

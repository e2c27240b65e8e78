"""What a checkpoint can hold: tensors and plain data, which `weights_only=True` reads back."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hookline.errors import HookError

#: Exactly these: an enum is an int to Python, and a class to a file.
PLAIN = frozenset({str, bytes, int, float, complex, bool, type(None), torch.Size, torch.dtype, torch.device})
DICTS = frozenset({dict, OrderedDict, Counter})


def refuse_odd(value: Any, where: str) -> None:
    """Refuse what cannot be read back with `weights_only=True`, by name, before anything is written."""
    kind = type(value)
    if kind in PLAIN or isinstance(value, Tensor):
        return
    if kind in DICTS:
        for key, inner in value.items():
            refuse_odd(key, f"the key {key!r} in {where}")
            refuse_odd(inner, f"{where}[{key!r}]")
    elif kind in (list, tuple):
        for index, inner in enumerate(value):
            refuse_odd(inner, f"{where}[{index}]")
    else:
        raise HookError(
            f"{where} is a {kind.__module__}.{kind.__qualname__}, which a checkpoint cannot hold; "
            "give tensors and plain data (numbers, strings, lists, dicts)"
        )


def without_numpy(value: Any) -> Any:
    """The same with numpy's numbers as Python's: optimizers and schedulers take them as learning rates."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is dict:
        return {key: without_numpy(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(without_numpy(inner) for inner in value)
    return value

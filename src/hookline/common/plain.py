"""The data that a checkpoint can store: tensors and plain data, which `weights_only=True` can load."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hookline.errors import HookError

#: Exactly these types, not their subclasses: an enum may be an int in Python, but a file stores it as a class.
PLAIN = frozenset({str, bytes, int, float, complex, bool, type(None), torch.Size, torch.dtype, torch.device})
DICTS = frozenset({dict, OrderedDict, Counter})


def check_plain(value: Any, where: str) -> None:
    """Refuse a value that `weights_only=True` cannot load, before anything is written. The error says where it is."""
    kind = type(value)
    if kind in PLAIN or isinstance(value, Tensor):
        return
    if kind in DICTS:
        for key, inner in value.items():
            check_plain(key, f"the key {key!r} in {where}")
            check_plain(inner, f"{where}[{key!r}]")
    elif kind in (list, tuple):
        for index, inner in enumerate(value):
            check_plain(inner, f"{where}[{index}]")
    else:
        raise HookError(
            f"{where} is a {kind.__module__}.{kind.__qualname__}, which a checkpoint cannot store; "
            "use tensors and plain data (numbers, strings, lists, dicts)"
        )


def without_numpy(value: Any) -> Any:
    """Return the value with numpy numbers converted to Python numbers.

    Optimizers and schedulers accept numpy numbers as learning rates, so their states may contain them.
    """
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is dict:
        return {key: without_numpy(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(without_numpy(inner) for inner in value)
    return value
